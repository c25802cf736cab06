"""Headers that may come once only: of two, a proxy on the way may have believed the other one."""

from starlette.requests import Request

from functions.web import problems

ONCE = ("authorization", "content-encoding", "content-type", "idempotency-key")


def require_single(request: Request) -> None:
    """Refuse a request that says the same thing twice, alike or not.

    Raises:
        Problem: 400.
    """
    for name in ONCE:
        if len(request.headers.getlist(name)) > 1:
            raise problems.bad_request(f"the header {name} must be sent once only")
