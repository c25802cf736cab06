"""The clock that follows the server."""

from datetime import UTC, datetime, timedelta

import pytest

from functions.adapters.clock import SystemClock

NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


class Machine:
    """A machine whose monotonic clock a test moves, with a wall clock that may be wrong."""

    def __init__(self, wall: datetime = NOON) -> None:
        self.seconds = 100.0
        self._wall = wall

    def monotonic(self) -> float:
        """Return the monotonic seconds."""
        return self.seconds

    def wall(self) -> float:
        """Return the wall clock's seconds since 1970."""
        return self._wall.timestamp()

    def clock(self) -> SystemClock:
        """Return a clock on this machine."""
        return SystemClock(monotonic=self.monotonic, wall=self.wall)


def seconds_past_noon(clock: SystemClock) -> float:
    """Return the clock's time."""
    return (clock.now() - NOON).total_seconds()


def at(seconds: float) -> datetime:
    """Return so many seconds past noon."""
    return NOON + timedelta(seconds=seconds)


def test_it_starts_with_the_machine_s_own_time() -> None:
    """Before the first observation the time is the wall clock's, and it runs."""
    machine = Machine()
    clock = machine.clock()
    machine.seconds += 3
    assert seconds_past_noon(clock) == pytest.approx(3)
    assert clock.now().utcoffset() == timedelta(0)


@pytest.mark.parametrize("wrong_by_seconds", [-3600, 3600])
def test_the_first_observation_corrects_a_wrong_wall_clock(wrong_by_seconds: int) -> None:
    """A machine that is an hour off follows the server from the first answer on."""
    machine = Machine(wall=at(wrong_by_seconds))
    clock = machine.clock()
    clock.now()
    clock.observe(NOON)
    machine.seconds += 1
    assert seconds_past_noon(clock) == pytest.approx(1)


def test_the_answer_that_came_fastest_counts() -> None:
    """A slow answer does not set the clock back; a faster one sets it forward."""
    machine = Machine()
    clock = machine.clock()
    clock.observe(at(-0.2))
    clock.observe(at(-0.9))
    assert seconds_past_noon(clock) == pytest.approx(-0.2)
    clock.observe(at(-0.1))
    assert seconds_past_noon(clock) == pytest.approx(-0.1)


def test_it_never_goes_back() -> None:
    """When an estimate turns out too high, the time stands still until it is true."""
    machine = Machine()
    clock = machine.clock()
    clock.observe(at(1.0))  # this machine then runs fast, so the bound grows too high
    shown = [clock.now()]
    for second in range(1, 200):
        machine.seconds += 1
        clock.observe(at(second))
        shown.append(clock.now())
    assert shown == sorted(shown)
    assert seconds_past_noon(clock) == pytest.approx(199)


def test_a_bound_is_forgotten_within_two_minutes() -> None:
    """Drift of the monotonic clock is corrected by the answers of the last two minutes."""
    machine = Machine()
    clock = machine.clock()
    clock.observe(at(5.0))
    for second in range(1, 122):
        machine.seconds += 1
        clock.observe(at(second))
    machine.seconds += 10
    assert seconds_past_noon(clock) == pytest.approx(131)


def test_a_long_silence_leaves_no_old_bound() -> None:
    """After an hour without answers the first new one is believed at once."""
    machine = Machine()
    clock = machine.clock()
    clock.observe(NOON)
    machine.seconds += 3600
    clock.observe(at(3599.5))
    machine.seconds += 1
    assert seconds_past_noon(clock) == pytest.approx(3600.5)
