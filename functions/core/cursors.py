"""Cursors of lists: the time and the ID of the last item that was shown, as an opaque text."""

import base64
import binascii
import json
from datetime import UTC, datetime

from functions.core.errors import EmpanelError
from functions.core.identities import is_identity


class BadCursor(EmpanelError):
    """The cursor is not one of ours."""


def encode_cursor(moment: datetime, identity: str) -> str:
    """Return the cursor of an item."""
    position = [moment.astimezone(UTC).isoformat(), identity]
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[datetime, str]:
    """Return the time and the ID in a cursor.

    Raises:
        BadCursor: it is none.
    """
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        moment, identity = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        parsed = datetime.fromisoformat(moment)
        in_utc = parsed.astimezone(UTC)  # a time without a zone is refused below
    except (binascii.Error, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise BadCursor("the cursor is not one that a list answered") from exc
    if parsed.tzinfo is None or not isinstance(identity, str) or not is_identity(identity):
        raise BadCursor("the cursor is not one that a list answered")
    return in_utc, identity
