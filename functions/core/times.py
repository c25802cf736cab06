"""How moments are written where people and other systems read them."""

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Return a moment in RFC 3339, UTC, as `2026-11-29T12:00:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def timestamp(moment: datetime | None) -> str | None:
    """Return a moment in RFC 3339, UTC; None when there is none."""
    return None if moment is None else rfc3339(moment)
