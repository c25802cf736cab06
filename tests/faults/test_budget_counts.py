"""What caps cost in documents read and written, on top of `test_operation_counts`."""

from functions.core.budgets import Caps
from functions.tenant_caps import TenantCaps
from tests.faults.prices import FakePrices
from tests.faults.test_operation_counts import counting_world
from tests.faults.world import submission


async def test_a_seat_under_a_cap_costs_six_documents_more() -> None:
    """Read and written to reserve, looked at after the claim, read and written to true up."""
    world, counting = counting_world(prices=FakePrices())
    await world.submit(submission(max_cost_usd=2.0))
    await world.deliver_all()
    counted = {name: n for name, n in counting.documents.items() if "budgets" in name}
    assert counted == {
        "read: get budgets": 1,
        "written: create budgets": 1,
        "read: get terminals, budgets": 2,  # the terminal record is read without a cap, too
        "read: get budgets, evaluations": 2,
        "written: update budgets": 1,
    }
    assert not counting.refused


async def test_a_capped_day_costs_a_job_five_documents_more() -> None:
    """Looked at and reserved with the job, trued up with its close, whatever its seats."""
    world, counting = counting_world(tenant_caps=TenantCaps(everyone=Caps(requests=100)))
    await world.submit(submission(["m0", "m1", "m2"]))
    await world.deliver_all()
    counted = [name for name in counting.documents if "tenant_days" in name]
    reads, accepting, closing = sorted(counted)
    assert (reads, counting.documents[reads]) == ("read: get tenant_days", 3)
    assert accepting == "written: create tenant_days, create jobs"
    assert closing.startswith("written: update tenant_days, create terminals")


async def test_caps_that_cannot_bind_cost_nothing() -> None:
    """Above what all attempts could come to, and without a cap of the day, nothing is counted."""
    world, counting = counting_world(prices=FakePrices())
    await world.submit(submission(max_requests=9))
    await world.deliver_all()
    assert not [n for n in counting.documents if "budgets" in n or "tenant_days" in n]
