"""Firestore's errors in the ledger's words: a lost race, no certain answer, or a wrong request.

    AlreadyExists                               WriteConflict      a create found the document
    NotFound, with an update                    WriteConflict      the document to update is gone
    FailedPrecondition, with `if_updated_at`    WriteConflict      another `update_time`
    InvalidArgument                             ValueError         the request is malformed
    everything else                             LedgerUnavailable  with the server's text

The rest is never an empty result: a missing index (FailedPrecondition), a missing permission,
quota. Aborted (lock contention) belongs there: it says nothing about what a create would find.
Source: google/rpc/code.proto and the emulator's answers (`tests/contract`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from google.api_core.exceptions import (
    AlreadyExists,
    FailedPrecondition,
    GoogleAPICallError,
    InvalidArgument,
    NotFound,
)
from google.auth.exceptions import GoogleAuthError

from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.ports import Update, Write


@contextmanager
def reading() -> Iterator[None]:
    """Translate the errors of a read.

    Raises:
        LedgerUnavailable: no certain answer.
        ValueError: the server refused the request as malformed.
    """
    try:
        with committing(()):
            yield
    except WriteConflict as exc:  # a read has lost nothing to anybody
        raise LedgerUnavailable(str(exc)) from exc


@contextmanager
def committing(writes: Sequence[Write]) -> Iterator[None]:
    """Translate the errors of a commit of `writes`.

    Raises:
        WriteConflict: nothing was applied.
        LedgerUnavailable: the writes may or may not have been applied.
        ValueError: the server refused the writes as malformed; nothing was applied.
    """
    try:
        yield
    except GoogleAPICallError as exc:
        raise _translated(exc, writes) from exc
    except GoogleAuthError as exc:
        raise LedgerUnavailable(f"Firestore: {exc}") from exc


def _translated(exc: GoogleAPICallError, writes: Sequence[Write]) -> Exception:
    text = f"Firestore: {exc}"
    if _is_conflict(exc, writes):
        return WriteConflict(text)
    if isinstance(exc, InvalidArgument):
        return ValueError(text)
    return LedgerUnavailable(text)


def _is_conflict(exc: GoogleAPICallError, writes: Sequence[Write]) -> bool:
    match exc:
        case AlreadyExists():
            return True
        case NotFound():  # a database that does not exist is NotFound as well
            return any(isinstance(w, Update) for w in writes) and "does not exist for" not in str(
                exc
            )
        case FailedPrecondition():
            return any(isinstance(w, Update) and w.if_updated_at is not None for w in writes)
    return False
