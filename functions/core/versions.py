"""Which version of each record, object and message this release writes, and which it reads. Pure.

A new field that readers may miss is no new version: readers leave out what they do not know, and an
update writes only what has changed. Everything else is one, and comes in two releases, because old
and new instances work side by side while one is rolled out:

    release 1   reads versions 1 and 2, writes 1      nobody writes what an older one cannot read
    release 2   reads versions 1 and 2, writes 2      what release 1 has stored or sent stays good

Nothing here guesses: a version that is in no table is `UnknownVersion`, which becomes an incident.
Reasons: infra/decisions/2026-11-29-versions.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.core.errors import UnknownVersion, UnreadableRecord

Fields = Mapping[str, Any]
Upgrade = Callable[[Fields], Fields]
THIS_MESSAGE = "the message"  # has no name that it could be found by
UNVERSIONED = 0  # what was written before its kind had a version


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """The versions of one kind; `where` is its collection, folder or topic, for people and tests.

    `upgrades` gives, for each further version that is read, what makes this release's fields of it.
    `covered_by` names the kind whose version also says how this one is to be read.
    """

    where: str
    written: int = 1
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    covered_by: str | None = None

    def read(self, data: Fields, name: str) -> dict[str, Any]:
        """Return the fields as this release knows them; `v` stays as it was stored.

        Raises:
            UnknownVersion: this release does not read that version.
            UnreadableRecord: the fields are not those of the version.
        """
        version = data.get("v", UNVERSIONED)
        if type(version) is int and version == self.written:  # true is no 1
            return dict(data)
        upgrade = self.upgrades.get(version) if type(version) is int else None
        if upgrade is None:
            raise UnknownVersion(name, version)
        try:
            return {**upgrade(data), "v": version}
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise UnreadableRecord(f"{name}: not what version {version} is", where=name) from exc


def unchanged(fields: Fields) -> Fields:
    """Return the fields of a version that differs from the written one in its number alone."""
    return fields


JOB = Form(where="jobs")
SEAT = Form(where="jobs/*/seats")
TERMINAL = Form(where="jobs/*/terminals")
RUN = Form(where="runs")
EVALUATION = Form(where="evaluations")
BUDGET = Form(where="budgets")
TENANT_DAY = Form(where="tenant_days")
STOP = Form(where="stops")
NOTIFICATION = Form(where="notifications")
ACTION = Form(where="decisions/*/actions")
WINDOW = Form(where="windows")
INCIDENT = Form(where="incidents")
PAUSE = Form(where="providers")
SIGHTING = Form(where="sightings")
API_KEY = Form(where="api_keys")
OPERATOR_LOG = Form(where="operator_log")  # read by people, with Google's own tools
REPAIR = Form(where="repairs")

OUTPUT = Form(where="outputs")
INPUT = Form(where="inputs", covered_by="jobs")  # the caller's own JSON, under its digest
REPORT = Form(where="audits/*/*/report", upgrades={UNVERSIONED: unchanged})
REPORT_LINES = Form(where="audits/*/*/runs", covered_by="audits/*/*/report")

SEAT_MESSAGE = Form(where="evaluate")
NOTIFICATION_MESSAGE = Form(where="notify")
EVENT = Form(where="events")  # its version is in the attribute `ce-dataschema`

RECORDS = (
    JOB,
    SEAT,
    TERMINAL,
    RUN,
    EVALUATION,
    BUDGET,
    TENANT_DAY,
    STOP,
    NOTIFICATION,
    ACTION,
    WINDOW,
    INCIDENT,
    PAUSE,
    SIGHTING,
    API_KEY,
    OPERATOR_LOG,
    REPAIR,
)
OBJECTS = (OUTPUT, INPUT, REPORT, REPORT_LINES)
MESSAGES = (SEAT_MESSAGE, NOTIFICATION_MESSAGE, EVENT)
