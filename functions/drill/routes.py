"""A drill on consumers that learn of the same decision by two routes."""

import asyncio
import secrets
from typing import Any

import httpx

from functions.drill.accounting import Check, Promise
from functions.drill.injected import Injected
from functions.drill.site import NotSeen, Site

ROUTES = ("told-by-notification", "found-by-polling")


async def two_routes(site: Site) -> Injected:
    """Let two consumers act on a decision at once, and again after a replay.

    The job may make one request for two seats, so that a replay has something left to ask.
    """
    job = await site.submit("two-routes", seats=2, required_seats=1, max_requests=1)
    [ended] = await site.ended(job)
    decision, action = str(ended["decision_id"]), f"act-{secrets.token_hex(4)}"
    first = await _both(site, decision, action)
    again = await _both(site, decision, action)
    await _replay(site, job)
    [replayed] = await site.ended(job, run=2)
    later = await _both(site, decision, action)
    answers = (*first, *again, *later)
    holders = {str(answer["holder"]) for answer in answers}
    told = [{route for route, answer in zip(ROUTES, pair, strict=True) if answer["first"]}
            for pair in (first, again, later)]  # fmt: skip
    checks = (
        Check(
            promise=f"one of two consumers holds the action of {decision}, for ever",
            kept=len(holders) == 1 and told == [holders] * 3,
            seen=f"holders {sorted(holders)}, told that they are first: {told}",
        ),
        Check(
            promise="the decision is the same after a replay",
            kept=replayed["decision_id"] == decision,
            seen=f"{replayed['decision_id']}",
        ),
    )
    promise = Promise(states={job: "succeeded"}, attempts={job: {"succeeded": 2}})
    return Injected(jobs=(job,), promise=promise, checks=checks)


async def _both(site: Site, decision: str, action: str) -> list[dict[str, Any]]:
    claims = (site.interface.act(decision, action, route) for route in ROUTES)
    return list(await asyncio.gather(*claims))


async def _replay(site: Site, job: str) -> None:
    response = await site.interface.call("POST", f"/v1/jobs/{job}/replay")
    if response.status_code != httpx.codes.ACCEPTED:
        raise NotSeen(f"{job} is not replayed: HTTP {response.status_code}: {response.text[:300]}")
