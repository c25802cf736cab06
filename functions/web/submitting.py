"""A job's text becomes an accepted job; what refuses it becomes a problem. For every way in."""

from functions.acceptance import Acceptance, IdempotencyConflict, accept
from functions.core.submissions import Submission
from functions.open_seats import TooManyOpen
from functions.services import Services
from functions.statuses import JobStatus, read_status
from functions.tenant_days import DaySpent
from functions.web import problems, strict_json
from functions.web.authentication import Caller
from functions.web.faults import Fault
from functions.web.finding import too_many_open
from functions.web.request_models import JobBody
from functions.web.requests import read_submission
from functions.worst_cases import CostRefused


def submission_of(
    services: Services,
    caller: Caller,
    body: bytes,
    *,
    idempotency_key: str | None,
    traceparent: str | None,
    shape: type[JobBody] = JobBody,
) -> Submission:
    """Return the job that a body and its headers ask for; `shape` is the model of the body.

    Raises:
        Problem: the body is no JSON, or breaks a rule.
    """
    return read_submission(
        strict_json.parse(body),
        tenant=caller.tenant,
        default_owner=caller.tenant,
        endpoints={name: provider.endpoint for name, provider in services.providers.items()},
        refused_parameters=lambda name, given: services.providers[name].refused_parameters(given),
        idempotency_key=idempotency_key,
        traceparent=services.tracing.own_traceparent() or traceparent,
        allow_loopback=services.settings.webhook_loopback,
        shape=shape,
    )


async def accepted(services: Services, submission: Submission) -> Acceptance:
    """Accept a job.

    Raises:
        Problem: 422 for another request's key or a cap that cannot be kept; 429 when the tenant has
            no room now.
    """
    try:
        return await accept(services, submission)
    except IdempotencyConflict as exc:
        raise problems.key_conflict(
            "this Idempotency-Key was used with another body: the digest of the request differs "
            f"from that of {exc.job.id}"
        ) from exc
    except CostRefused as exc:
        raise problems.unprocessable([Fault(path=exc.path, detail=exc.detail)]) from exc
    except DaySpent as exc:
        left = (exc.until - services.clock.now()).total_seconds()
        raise problems.rate_limited(exc.reason, left) from exc
    except TooManyOpen as exc:
        raise too_many_open(exc) from exc


async def status_after(services: Services, acceptance: Acceptance) -> JobStatus:
    """Return how a job stands; to one that was recorded a moment ago nothing has happened yet.

    Raises:
        LedgerUnavailable: a job that was known cannot be read.
    """
    if not acceptance.created:
        return await read_status(services, acceptance.job)
    now = services.clock.now()
    return JobStatus(job=acceptance.job, terminal=None, records=(), evaluations={}, now=now)
