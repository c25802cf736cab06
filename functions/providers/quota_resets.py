"""When a used-up quota or spend limit is free again, where the vendor says or documents it."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from functions.providers.error_bodies import ErrorBody
from functions.providers.vendor_codes import NO_QUOTA, OWN_SPEND_LIMIT, SPENT_MONTHLY

PACIFIC = "America/Los_Angeles"
# Without zone data: winter time all year. In summer it names a moment an hour late, never early.
_PACIFIC_WINTER = timezone(timedelta(hours=-8))
_REGAINED = re.compile(r"regain access on (\d{4}-\d{2}-\d{2}) at (\d{2}:\d{2}) UTC")


def free_again(error: ErrorBody, now: datetime) -> datetime | None:
    """Return the moment, in UTC, from which a quota that is used up can be used again.

    Sources: Anthropic's message or, without a date in it, the 1st of the next month UTC (its spend
    limits are monthly); OpenRouter's `metadata.resets_at`; midnight Pacific for Google's quotas per
    day. A tier without any quota (`limit: 0`) and used-up credit have no such moment.
    """
    said = _REGAINED.search(error.message)
    if said is not None and (moment := _moment(f"{said[1]}T{said[2]}:00+00:00")) is not None:
        return moment
    if (moment := _moment(error.metadata.get("resets_at"))) is not None:
        return moment
    if SPENT_MONTHLY.intersection(error.names) or OWN_SPEND_LIMIT.match(error.message):
        return next_month(now)
    if is_daily(error) and not NO_QUOTA.search(error.message):
        return next_midnight_pacific(now)
    return None


def is_daily(error: ErrorBody) -> bool:
    """Whether Google names a quota per day among those that are used up."""
    return any("perday" in quota_id.lower() for quota_id in error.quota_ids)


def next_month(now: datetime) -> datetime:
    """Return the first moment of the month after `now`, UTC."""
    here = now.astimezone(UTC)
    years, month = divmod(here.month, 12)
    return datetime(here.year + years, month + 1, 1, tzinfo=UTC)


def next_midnight_pacific(now: datetime) -> datetime:
    """Return the next midnight in California, in UTC."""
    zone = _pacific()
    tomorrow = now.astimezone(zone).date() + timedelta(days=1)
    return datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=zone).astimezone(UTC)


def _pacific() -> tzinfo:
    try:
        return ZoneInfo(PACIFIC)
    except ZoneInfoNotFoundError:
        return _PACIFIC_WINTER


def _moment(text: object) -> datetime | None:
    """Return an ISO 8601 moment with a time zone, in UTC, else None."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
