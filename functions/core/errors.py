"""The exceptions of Empanel. Vendor errors are translated into these once, at the adapters' edge.

EmpanelError
├── LedgerError              the ledger answered, or failed to
│   ├── LedgerUnavailable    no answer, or an ambiguous one: the write may have been applied
│   └── WriteConflict        a precondition did not hold: nothing of that commit was applied
├── ObjectError
│   ├── ObjectsUnavailable   the bucket did not answer
│   └── ObjectMissing        the bucket answered that there is no such object (404, never 403)
├── CallerRefused            an identity token does not prove an allowed machine caller
├── CallersUnknown           no token can be checked at present: ask again
├── PublishFailed            at least one message was not confirmed by the topic
├── UnreadableRecord         a stored record or a message lacks the form its version promises
│   └── UnknownVersion       it is of a version that this release does not read
└── ConfigurationError       a setting that stops the start: name, value and rule are in the text

A provider's failure is a value, not an exception: see `CallFailure` in `functions.core.verdicts`.
Losing a race is a value as well: `functions.core.leases` and `functions.settlement` say who won.
"""


class EmpanelError(Exception):
    """Base of all exceptions raised by Empanel's own code."""


class LedgerError(EmpanelError):
    """The ledger could not do what was asked."""


class LedgerUnavailable(LedgerError):
    """The ledger gave no certain answer; a write may have been applied. Resolve by reading back."""


class WriteConflict(LedgerError):
    """A create found the document there, or an update found another `update_time`."""


class ObjectError(EmpanelError):
    """The object store could not do what was asked."""


class ObjectsUnavailable(ObjectError):
    """The object store gave no certain answer (outage, timeout, missing permission)."""


class ObjectMissing(ObjectError):
    """The object store is certain that the object does not exist."""


class CallerRefused(EmpanelError):
    """The token does not prove an allowed caller; the text says which rule failed."""


class CallersUnknown(EmpanelError):
    """There is nothing to check identity tokens against; neither accepted nor refused."""


class PublishFailed(EmpanelError):
    """The topic did not confirm every message; some may have been published."""


class UnreadableRecord(EmpanelError):
    """A stored record or a message cannot be read as the version it claims to be.

    `where` is the path of the document or the name of the object, None where it is neither.
    """

    def __init__(self, text: str, *, where: str | None = None) -> None:
        super().__init__(text)
        self.where = where


class UnknownVersion(UnreadableRecord):
    """It is of a version that this release does not read: most likely another release's, undamaged.

    So nothing may be repaired, bought again or overwritten because of it.
    """

    def __init__(self, where: str, version: object) -> None:
        shown = version if type(version) is int else repr(version)[:50]
        super().__init__(f"{where}: schema version {shown} is unknown to this release", where=where)
        self.version = shown


class ConfigurationError(EmpanelError):
    """A setting breaks its rule; the process must not start."""
