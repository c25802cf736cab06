"""The route for many jobs in one request: one a line, each accepted or refused by itself."""

import asyncio
from collections import defaultdict

from starlette.requests import Request
from starlette.responses import Response

from functions import telemetry
from functions.core.errors import UnreadableRecord
from functions.core.identities import digest, job_id
from functions.core.submissions import Submission
from functions.statuses import job_view
from functions.web import batches, catalog, problems, queries
from functions.web.application import Application
from functions.web.authentication import Caller
from functions.web.bodies import NDJSON, read_body, require_ndjson
from functions.web.request_models import LineBody
from functions.web.routing import problem_of, record_unreadable, route
from functions.web.submitting import accepted, status_after, submission_of


async def submit_batch(application: Application, request: Request) -> Response:
    """Answer every line as a request of its own would be, in order; 200 whatever the lines get."""
    services, caller = application.services, await application.keys.caller(request)
    queries.only(request.query_params, frozenset())
    if "idempotency-key" in request.headers:
        raise problems.bad_request(
            "Idempotency-Key is for a single job; in a batch each line has its `idempotency_key`"
        )
    require_ndjson(request)
    lines = batches.read_lines(await read_body(request))
    application.keys.charge(caller, len(lines) - 1)
    door = _Door(application, caller, request)
    answers = await batches.answer_all(services, lines, door.answer)
    return Response(b"".join(answers), media_type=NDJSON)


class _Door:
    """Where the lines of one batch come in."""

    def __init__(self, application: Application, caller: Caller, request: Request) -> None:
        self._services = application.services
        self._caller = caller
        self._request = request
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._new: set[str] = set()

    async def answer(self, number: int, line: bytes) -> bytes:
        """Return the answer to one line; every error becomes its problem, and nobody else's."""
        telemetry.about(line=number)
        try:
            return await self._answer(number, self._read(line))
        except Exception as exc:  # noqa: BLE001 - as at the last door of a request: logged there
            if isinstance(exc, UnreadableRecord):
                await record_unreadable(self._services, exc)
            return batches.refused(number, problem_of(exc, self._request))

    def _read(self, line: bytes) -> Submission:
        return submission_of(
            self._services,
            self._caller,
            line,
            idempotency_key=None,
            traceparent=self._request.headers.get("traceparent"),
            shape=LineBody,
        )

    async def _answer(self, number: int, asked: Submission) -> bytes:
        """Accept a line's job; lines of the same identity take their turns in their order.

        So the first of them is the one that is accepted, whoever would have been faster.
        """
        identity = job_id(
            asked.tenant, idempotency_key=asked.idempotency_key, request_digest=digest(asked.body)
        )
        telemetry.follow(asked.traceparent)
        async with self._turns[identity]:
            acceptance = await accepted(self._services, asked)
            status = await status_after(self._services, acceptance)
        # An acceptance knows its own by the moment it was asked for, which two lines can share.
        created = acceptance.created and identity not in self._new
        self._new.add(identity)
        return batches.shown(number, 202 if created else 200, job_view(status))


ROUTES = (route("/v1/jobs:batch", submit_batch, "POST", catalog.SUBMIT_BATCH),)
