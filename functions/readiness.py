"""Whether the service can do its work now: ledger, store and topic answer within a bounded time."""

import asyncio
from collections.abc import Awaitable

from functions import telemetry
from functions.core.documents import api_key_path
from functions.core.errors import LedgerError, ObjectError, PublishFailed
from functions.services import Services

ANSWER_SECONDS = 3.0
NOBODY = "ready"  # names a key and an object that are never there


async def unready(services: Services, within_seconds: float = ANSWER_SECONDS) -> list[str]:
    """Return which of `ledger`, `store` and `topic` gave no answer in time; none when ready."""
    parts: dict[str, Awaitable[object]] = {
        "ledger": services.ledger.get(api_key_path(NOBODY)),
        "store": services.objects.stat(NOBODY),
        "topic": services.publisher.check(services.settings.evaluate_topic),
    }
    answers = await asyncio.gather(
        *(_answers(name, asked, within_seconds) for name, asked in parts.items())
    )
    return [name for name, answered in zip(parts, answers, strict=True) if not answered]


async def _answers(name: str, asked: Awaitable[object], within_seconds: float) -> bool:
    try:
        async with asyncio.timeout(within_seconds):
            await asked
    except (LedgerError, ObjectError, PublishFailed, TimeoutError) as exc:
        telemetry.warning("not ready", part=name, error=repr(exc)[:300])
        return False
    return True
