"""The promise of every route of the `api` target; the routes refer to them by name."""

from typing import Any

from functions.web import parameters as p
from functions.web.acting_models import HolderBody, NoteBody
from functions.web.batch_models import LineAnswer
from functions.web.bodies import NDJSON
from functions.web.book_models import (
    ActionShown,
    AuditList,
    AuditShown,
    IncidentPage,
    IncidentShown,
    NotificationShown,
)
from functions.web.event_stream import MEDIA_TYPE as EVENT_STREAM
from functions.web.operations import Answer, Operation
from functions.web.request_models import JobBody, LineBody
from functions.web.response_models import (
    AttemptList,
    EstimateShown,
    HealthShown,
    JobEvent,
    JobPage,
    JobShown,
    ReadyProblem,
    ReadyShown,
    ReportProblem,
    ReportShown,
)

JOBS, BOOKS, ACTING, SERVICE = "Jobs", "Books", "Decisions", "Service"
TAGS = {
    JOBS: "Submit a panel, watch it, read its report, stop it, run it again.",
    BOOKS: "Audits of every hour, incidents, notifications.",
    ACTING: "Act once on what a job came to.",
    SERVICE: "The service itself.",
}

_UNCHANGED = Answer(description="It is what the caller has.", media_type=None, headers=("ETag",))


def _links() -> dict[str, Any]:
    """Return what can be asked about the job that an answer shows."""
    of_the_job = (
        *("readJob", "watchJob", "readReport", "readAttempts"),
        *("cancelJob", "replayJob", "purgeJob"),
    )
    job = {"job": "$response.body#/id"}
    decision = {"decision": "$response.body#/decision_id", "name": "publish"}
    run = {"notification": "{$response.body#/decision_id}.{$response.body#/run}"}
    return {
        **{name: {"operationId": name, "parameters": job} for name in of_the_job},
        "claimAction": {"operationId": "claimAction", "parameters": decision},
        "readNotification": {"operationId": "readNotification", "parameters": run},
        "redeliverNotification": {"operationId": "redeliverNotification", "parameters": run},
    }


_OF_A_JOB = _links()
_OF_AN_INCIDENT = {
    "resolveIncident": {
        "operationId": "resolveIncident",
        "parameters": {"incident": "$response.body#/incidents/0/id"},
    }
}

SUBMIT = Operation(
    id="submitJob",
    tag=JOBS,
    summary="Ask a panel",
    description="Accepts a job, or returns the one that has its identity.",
    parameters=(p.IDEMPOTENCY_KEY, p.PREFER, p.TRACEPARENT),
    body=JobBody,
    answers={
        202: Answer(
            description="Accepted: everything is on record.",
            model=JobShown,
            headers=("Location", "Retry-After"),
            links=_OF_A_JOB,
        ),
        200: Answer(
            description="Known already, or ended while the answer waited; this is how it is now.",
            model=JobShown,
            headers=("Location", "Retry-After"),
            links=_OF_A_JOB,
        ),
    },
)
SUBMIT_BATCH = Operation(
    id="submitBatch",
    tag=JOBS,
    summary="Ask many panels",
    description="A job a line, each accepted or refused by itself, at most 1,000 lines and 1 MiB."
    " The n-th line of the answer is about the n-th line of the body: its `status` is what the job"
    " would get as a request of its own. Lines that mean the same job are answered with it. A line"
    " that is told 503 is to be sent again. Each line counts as a request of the key.",
    parameters=(p.TRACEPARENT,),
    body=LineBody,
    body_media_type=NDJSON,
    answers={
        200: Answer(description="An answer a line.", model=LineAnswer, media_type=NDJSON),
    },
)
ESTIMATE = Operation(
    id="estimateJob",
    tag=JOBS,
    summary="Ask what a job would need",
    description="Accepts and stores nothing.",
    parameters=(p.IDEMPOTENCY_KEY, p.TRACEPARENT),
    body=JobBody,
    answers={200: Answer(description="What it would need now.", model=EstimateShown)},
)
LIST_JOBS = Operation(
    id="listJobs",
    tag=JOBS,
    summary="List jobs",
    description="Newest first. A cursor stays right while jobs are added.",
    parameters=(p.STATE, p.IN_WINDOW, p.OWNER, p.LABEL, p.LIMIT, p.CURSOR),
    answers={200: Answer(description="A page.", model=JobPage)},
)
READ_JOB = Operation(
    id="readJob",
    tag=JOBS,
    summary="Read a job",
    description="Its states and facts as they are now. While it is open, `Retry-After` says when"
    " to look again: when all open seats wait for a provider, not before the last of them is due.",
    parameters=(p.JOB, p.IF_NONE_MATCH),
    answers={
        200: Answer(
            description="The job.",
            model=JobShown,
            headers=("ETag", "Retry-After"),
            links=_OF_A_JOB,
        ),
        304: _UNCHANGED,
    },
)
WATCH_JOB = Operation(
    id="watchJob",
    tag=JOBS,
    summary="Follow a job",
    description="Server-sent events. `event: job` with the whole job as `data` on connect, and"
    " again after each change; `id` is the ETag of the same bytes. A caller that reads slowly gets"
    " the latest state. Ends after the state in which the run has ended, and after a few minutes in"
    " any case: connect again with `Last-Event-ID`. A comment comes every 15 s.",
    parameters=(p.JOB, p.LAST_EVENT_ID),
    answers={
        200: Answer(
            description="Events, as they come; each has these fields.",
            model=JobEvent,
            media_type=EVENT_STREAM,
        ),
        204: Answer(
            description="The run has ended, and this is the state that the caller has.",
            media_type=None,
        ),
    },
)
READ_REPORT = Operation(
    id="readReport",
    tag=JOBS,
    summary="Read a report",
    parameters=(p.JOB, p.PARTIAL, p.IF_NONE_MATCH),
    answers={
        200: Answer(description="The report.", model=ReportShown, headers=("ETag",)),
        304: _UNCHANGED,
    },
    problems=frozenset({409, 410}),
    shown_problems={409: ReportProblem},
)
READ_ATTEMPTS = Operation(
    id="readAttempts",
    tag=JOBS,
    summary="Read a job's provider requests",
    parameters=(p.JOB,),
    answers={200: Answer(description="Every request of every run.", model=AttemptList)},
)
CANCEL = Operation(
    id="cancelJob",
    tag=JOBS,
    summary="Stop a job",
    description="A job that has ended stays as it is.",
    parameters=(p.JOB,),
    answers={200: Answer(description="The job as it is now.", model=JobShown)},
)
REPLAY = Operation(
    id="replayJob",
    tag=JOBS,
    summary="Run a job again",
    description="A new run of the seats without a success, with the same inputs.",
    parameters=(p.JOB,),
    answers={
        202: Answer(
            description="The next run has begun.",
            model=JobShown,
            headers=("Location", "Retry-After"),
        )
    },
    problems=frozenset({409, 410}),
)
PURGE = Operation(
    id="purgeJob",
    tag=JOBS,
    summary="Purge a job",
    description="Deletes inputs and answers of a job that has ended; digests and records stay.",
    parameters=(p.JOB,),
    answers={202: Answer(description="They are being deleted.", model=JobShown)},
    problems=frozenset({409}),
)
CLAIM_ACTION = Operation(
    id="claimAction",
    tag=ACTING,
    summary="Be the first to act",
    description="The first holder that asks may act, and is told so as often as it asks.",
    parameters=(p.DECISION, p.ACTION),
    body=HolderBody,
    answers={
        201: Answer(description="The first.", model=ActionShown),
        200: Answer(description="Somebody was first: see `first`.", model=ActionShown),
    },
)
LIST_AUDITS = Operation(
    id="listAudits",
    tag=BOOKS,
    summary="List audited hours",
    description="Newest first, at most 1,000.",
    parameters=(p.FROM, p.TO),
    answers={200: Answer(description="The hours.", model=AuditList)},
)
READ_AUDIT = Operation(
    id="readAudit",
    tag=BOOKS,
    summary="Read an hour's audit",
    parameters=(p.AUDIT_WINDOW,),
    answers={200: Answer(description="Its last audit.", model=AuditShown)},
)
LIST_INCIDENTS = Operation(
    id="listIncidents",
    tag=BOOKS,
    summary="List incidents",
    parameters=(p.STATUS, p.LIMIT, p.CURSOR),
    answers={
        200: Answer(description="A page, newest first.", model=IncidentPage, links=_OF_AN_INCIDENT)
    },
)
RESOLVE = Operation(
    id="resolveIncident",
    tag=BOOKS,
    summary="Resolve an incident",
    description="One that is resolved already stays as it is.",
    parameters=(p.INCIDENT,),
    body=NoteBody,
    answers={200: Answer(description="The incident.", model=IncidentShown)},
)
READ_NOTIFICATION = Operation(
    id="readNotification",
    tag=BOOKS,
    summary="Read a notification",
    parameters=(p.NOTIFICATION,),
    answers={200: Answer(description="The notification.", model=NotificationShown)},
)
REDELIVER = Operation(
    id="redeliverNotification",
    tag=BOOKS,
    summary="Send a notification again",
    description="Under the same ID and with the same bytes.",
    parameters=(p.NOTIFICATION,),
    answers={202: Answer(description="It will be sent.", model=NotificationShown)},
)
HEALTH = Operation(
    id="health",
    tag=SERVICE,
    summary="Whether the process serves requests",
    answers={200: Answer(description="It does.", model=HealthShown)},
)
READY = Operation(
    id="ready",
    tag=SERVICE,
    summary="Whether ledger, store and topic answer",
    answers={200: Answer(description="They do.", model=ReadyShown)},
    problems=frozenset({503}),
    shown_problems={503: ReadyProblem},
)
DOCUMENT = Operation(
    id="document",
    tag=SERVICE,
    summary="This document",
    parameters=(p.IF_NONE_MATCH,),
    answers={
        200: Answer(description="OpenAPI 3.1.", headers=("ETag",)),
        304: _UNCHANGED,
    },
)
DOCS = Operation(
    id="docs",
    tag=SERVICE,
    summary="This document for people",
    parameters=(p.IF_NONE_MATCH,),
    answers={
        200: Answer(description="A page.", media_type="text/html", headers=("ETag",)),
        304: _UNCHANGED,
    },
)
