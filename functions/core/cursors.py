"""Cursors of lists: the time and the ID of the last item that was shown, as an opaque text.

A cursor also names its list: whose it is, and what it is narrowed to. Used with another it would
leave items out in silence. It holds nothing that its caller has not seen, so it needs no secret.
"""

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any

from functions.core.errors import EmpanelError
from functions.core.identities import digest, is_identity

MARK_CHARACTERS = 16
NOT_OURS = "the cursor is not one that this list answered"


class BadCursor(EmpanelError):
    """The cursor is not one of ours, or is another list's."""


def encode_cursor(of: Any, moment: datetime, identity: str) -> str:
    """Return the cursor of an item; `of` is a JSON value that tells its list from all others."""
    position = [moment.astimezone(UTC).isoformat(), identity]
    marked = [*position, _mark(of, position)]
    return base64.urlsafe_b64encode(json.dumps(marked).encode()).decode().rstrip("=")


def decode_cursor(of: Any, cursor: str) -> tuple[datetime, str]:
    """Return the time and the ID in a cursor of the list `of`.

    Raises:
        BadCursor: it is none.
    """
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        moment, identity, _ = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        parsed = datetime.fromisoformat(moment)
        in_utc = parsed.astimezone(UTC)  # a time without a zone is refused below
    except (binascii.Error, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise BadCursor(NOT_OURS) from exc
    if parsed.tzinfo is None or not isinstance(identity, str) or not is_identity(identity):
        raise BadCursor(NOT_OURS)
    if cursor != encode_cursor(of, in_utc, identity):  # to the letter: a text has one spelling
        raise BadCursor(NOT_OURS)
    return in_utc, identity


def _mark(of: Any, position: list[str]) -> str:
    return digest([of, *position])[:MARK_CHARACTERS]
