"""The list of incidents: a tenant's own, newest first, page by page."""

from functions.incidents import OPEN, RESOLVED, list_incidents, open_incident, resolve
from functions.services import Services
from tests.faults.world import World


async def _opened(world: World, services: Services, *causes: str) -> None:
    for cause in causes:
        await open_incident(services, "aged_gap", cause, tenant="t", detail=cause)
        world.clock.advance(1.0)


async def _details(services: Services, status: str | None) -> list[str]:
    seen: list[str] = []
    cursor = None
    while True:
        page, cursor = await list_incidents(services, ("t",), status, limit=2, cursor=cursor)
        seen += [(found.data or {})["detail"] for found in page]
        if cursor is None:
            return seen


async def test_pages_go_from_the_newest_to_the_oldest() -> None:
    """Every incident of the tenant is shown once, however the pages are cut."""
    world = World()
    services = world.api.services
    await _opened(world, services, "one", "two", "three", "four", "five")
    await open_incident(services, "aged_gap", "foreign", tenant="other", detail="foreign")
    assert await _details(services, None) == ["five", "four", "three", "two", "one"]


async def test_a_status_picks_the_incidents_that_have_it() -> None:
    """A resolved incident leaves the list of the open ones."""
    world = World()
    services = world.api.services
    await _opened(world, services, "one", "two", "three")
    page, _ = await list_incidents(services, ("t",), None, limit=3, cursor=None)
    assert await resolve(services, ("t",), page[1].id, "seen to", "me") is not None
    assert await _details(services, OPEN) == ["three", "one"]
    assert await _details(services, RESOLVED) == ["two"]
