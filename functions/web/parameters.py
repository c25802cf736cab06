"""The parameters of the interface, with the rules that `queries` and the readers hold them to."""

from functions.core.identities import MAX_IDENTITY_CHARACTERS
from functions.core.jobs import JobState
from functions.incidents import OPEN, RESOLVED
from functions.web import request_models
from functions.web.operations import Parameter
from functions.web.queries import DEFAULT_LIMIT, MAX_LIMIT

IDENTITY = {
    "type": "string",
    "pattern": rf"^[A-Za-z0-9][A-Za-z0-9_]{{0,{MAX_IDENTITY_CHARACTERS - 1}}}$",
}
WINDOW = {
    "type": "string",
    "pattern": r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3])$",
}
AN_HOUR = "2026-11-29T12"

JOB = Parameter(name="job", place="path", description="The job's ID.", schema=IDENTITY)
INCIDENT = Parameter(
    name="incident", place="path", description="The incident's ID.", schema=IDENTITY
)
DECISION = Parameter(
    name="decision", place="path", description="The job's `decision_id`.", schema=IDENTITY
)
ACTION = Parameter(
    name="name",
    place="path",
    description="Name of the action, such as `publish`.",
    schema={"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"},
    example="publish",
)
NOTIFICATION = Parameter(
    name="notification",
    place="path",
    description="The notification's ID: `decision.run`.",
    schema={"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_]{0,127}\.[0-9]{1,9}$"},
)
AUDIT_WINDOW = Parameter(
    name="window", place="path", description="An hour, UTC.", schema=WINDOW, example=AN_HOUR
)

LIMIT = Parameter(
    name="limit",
    place="query",
    description="Most entries of the page.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
)
CURSOR = Parameter(
    name="cursor",
    place="query",
    description="`next_cursor` of the page before.",
    schema={"type": "string", "minLength": 1},
)
STATE = Parameter(
    name="state",
    place="query",
    description="Only jobs in this state.",
    schema={"type": "string", "enum": [state.value for state in JobState]},
)
IN_WINDOW = Parameter(
    name="window",
    place="query",
    description="Only jobs whose run was asked for in this hour, UTC.",
    schema=WINDOW,
    example=AN_HOUR,
)
OWNER = Parameter(
    name="owner",
    place="query",
    description="Only jobs of this owner.",
    schema={"type": "string", "maxLength": request_models.MAX_OWNER_CHARACTERS},
)
LABEL = Parameter(
    name="label",
    place="query",
    description="Only jobs with this label, as `key:value`.",
    schema={
        "type": "string",
        "pattern": ":",
        "maxLength": request_models.MAX_PAIR_CHARACTERS,
    },
    example="run:november",
)
FROM = Parameter(
    name="from", place="query", description="The first hour.", schema=WINDOW, example=AN_HOUR
)
TO = Parameter(
    name="to", place="query", description="The last hour.", schema=WINDOW, example=AN_HOUR
)
STATUS = Parameter(
    name="status",
    place="query",
    description="Only incidents of this status.",
    schema={"type": "string", "enum": [OPEN, RESOLVED]},
)
PARTIAL = Parameter(
    name="partial",
    place="query",
    description="Whether a report that lacks seats is shown as it is.",
    schema={"type": "boolean", "default": False},
)

IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key",
    place="header",
    description="Identity of the request: the same key and body are the same job. Without it the"
    " digest of the body is the identity, for ever.",
    schema={"type": "string", "pattern": request_models.IDEMPOTENCY_KEY},
    example="november-0001",
)
TRACEPARENT = Parameter(
    name="traceparent",
    place="header",
    description="W3C Trace Context; continued in log lines and spans, never sent to a provider.",
    schema={"type": "string"},
    example="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)
PREFER = Parameter(
    name="Prefer",
    place="header",
    description="`wait=SECONDS`: answer once the job has ended, or after that time, at most 60 s.",
    schema={"type": "string"},
    example="wait=20",
)
LAST_EVENT_ID = Parameter(
    name="Last-Event-ID",
    place="header",
    description="`id` of the last event that the caller has, or the job's ETag: no state is told"
    " twice.",
    schema={"type": "string"},
)
IF_NONE_MATCH = Parameter(
    name="If-None-Match",
    place="header",
    description="ETags of what the caller has; 304 when it is still so.",
    schema={"type": "string"},
)
