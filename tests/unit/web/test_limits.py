"""Buckets of requests, and places for those who wait."""

from functions.web import limits
from functions.web.limits import Places, Rates
from functions.web.sizes import size_fault


class Moments:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_minutes_worth_and_refills_steadily() -> None:
    """60 a minute: 60 at once, then one a second; a long rest fills it no further."""
    clock = Moments()
    rates = Rates(60, clock)
    assert [rates.wait_seconds("a") for _ in range(60)] == [0.0] * 60
    assert rates.wait_seconds("a") == 1.0
    clock.now += 1.0
    assert rates.wait_seconds("a") == 0.0
    assert rates.wait_seconds("a") > 0
    clock.now += 10_000
    assert sum(rates.wait_seconds("a") == 0 for _ in range(100)) == 60


def test_asking_in_vain_makes_nobody_wait_longer() -> None:
    """A refused request takes nothing out of the bucket."""
    clock = Moments()
    rates = Rates(1, clock)
    assert rates.wait_seconds("a") == 0
    assert [rates.wait_seconds("a") for _ in range(5)] == [60.0] * 5


def test_what_is_charged_beyond_the_bucket_is_waited_for() -> None:
    """A batch of 90 at 60 a minute: the next request waits half a minute, and longer no one."""
    clock = Moments()
    rates = Rates(60, clock)
    assert rates.wait_seconds("a") == 0
    rates.charge("a", 89)
    assert rates.wait_seconds("a") == 31.0
    assert rates.wait_seconds("b") == 0
    clock.now += 31
    assert rates.wait_seconds("a") == 0
    free = Rates(0, clock)
    free.charge("a", 1000)
    assert free.wait_seconds("a") == 0


def test_each_credential_has_its_own_bucket() -> None:
    """One that is empty says nothing of another; without a limit there is none at all."""
    rates = Rates(1, Moments())
    assert [rates.wait_seconds(name) for name in ("a", "b")] == [0, 0]
    free = Rates(0, Moments())
    assert {free.wait_seconds("a") for _ in range(1000)} == {0}


def test_memory_is_bounded() -> None:
    """Full buckets are forgotten first: whoever has just used one up does not get a new one."""
    clock = Moments()
    rates = Rates(1, clock)
    for number in range(limits.REMEMBERED):
        rates.wait_seconds(f"early{number}")
    clock.now += 61
    rates.wait_seconds("late")
    rates.wait_seconds("one more")
    assert len(rates._buckets) <= 3
    assert rates.wait_seconds("late") > 0


def test_no_tenant_takes_all_places() -> None:
    """Three places, two a tenant: the third request of one is refused, another's is not."""
    places = Places(everyone=3, tenant=2)
    first, second = places.take("a"), places.take("a")
    assert first is not None
    assert second is not None
    assert places.take("a") is None
    assert places.take("b") is not None
    assert places.take("c") is None
    first.release()
    first.release()  # once is once
    assert places.take("c") is not None
    assert places.take("c") is None


def test_a_place_is_given_back_at_the_end_of_its_block() -> None:
    """Also when the block ends with an error."""
    places = Places(everyone=1, tenant=1)
    try:
        place = places.take("a")
        assert place is not None
        with place:
            assert places.take("a") is None
            raise RuntimeError
    except RuntimeError:
        assert places.take("a") is not None


def test_sizes_are_counted_in_bytes() -> None:
    """A letter that takes three bytes counts as three, however it was spelled on the wire."""
    value = {"x": "\u20ac" * 10}  # {"x":"..."} has 8 bytes beside the text
    assert size_fault((), value, 38) is None
    assert size_fault((), value, 37) is not None
