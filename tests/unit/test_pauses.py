"""Pauses: what a hint asks for, how two become one, and when each seat may go."""

import asyncio
import math
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.core.documents import from_document, pause_path, to_document
from functions.core.errors import LedgerUnavailable, WriteConflict
from functions.core.pauses import Pause, covers, goes_at, merged, pause_after, place_of
from functions.core.ports import Create, Query, Snapshot, Update, Write
from functions.pauses import TELL_TRIES, Pauses
from functions.providers.registry import load
from tests.faults.fakes import failure
from tests.faults.world import World
from tests.unit.records import at

FAR = at(86_400 * 7)
moments = st.floats(0, 86_400, allow_nan=False).map(at)
places = st.integers(0, 9_999).map(lambda number: number / 10_000)


@st.composite
def pauses(draw: st.DrawFn) -> Pause:
    until = draw(moments)
    spread_seconds = draw(st.floats(1, 60))
    code = draw(st.sampled_from(["rate_limited", "overloaded"]))
    return pause(until=until, ends_at=until + timedelta(seconds=spread_seconds), code=code)


def pause(
    *,
    until: datetime | None = None,
    ends_at: datetime | None = None,
    model: str = "m0",
    code: str = "rate_limited",
) -> Pause:
    """Return a pause of 20 s from the start, spread over 10 s."""
    return Pause(
        scope="scope", model=model, code=code, until=until or at(20), ends_at=ends_at or at(30)
    )


def asked(code: str, hint: float | None, now: datetime | None = None) -> Pause | None:
    return pause_after(
        failure(code, http_status=429, hint_seconds=hint),
        scope="scope",
        model="m0",
        now=now or at(0),
    )


@pytest.mark.parametrize("code", ["rate_limited", "overloaded"])
def test_a_rate_limit_or_an_overload_with_a_hint_pauses(code: str) -> None:
    """The pause lasts as long as the hint says, and then lets go within half of that time."""
    assert asked(code, 20.0) == pause(code=code)


@pytest.mark.parametrize(
    "code", ["quota_exhausted", "invalid_credential", "provider_error", "timeout", "refused"]
)
def test_no_other_failure_pauses_anybody(code: str) -> None:
    """Quota, credential and other errors fail their own seats only, hint or not."""
    assert asked(code, 20.0) is None


@pytest.mark.parametrize("hint", [None, 0.0, 0.4, -5.0, math.nan, math.inf, 86_401.0])
def test_a_hint_without_a_usable_time_pauses_nobody(hint: float | None) -> None:
    """No hint, one too short for others to hear of, or one of more than a day: no pause."""
    assert asked("rate_limited", hint) is None


@given(hint=st.floats(1, 86_400), offset=st.floats(0, 60))
def test_a_pause_is_never_shorter_than_its_hint(hint: float, offset: float) -> None:
    """`until` is the hint's end, rounded up by less than a second; the spread is bounded."""
    found = asked("rate_limited", hint, now=at(offset))
    assert found is not None
    end = at(offset) + timedelta(seconds=hint)
    assert end <= found.until < end + timedelta(seconds=1)
    spread_seconds = (found.ends_at - found.until).total_seconds()
    assert min(max(hint / 2, 1), 60) <= spread_seconds <= min(hint / 2 + 1, 60)


@given(pauses(), pauses(), pauses())
def test_merging_knows_no_order(one: Pause, two: Pause, three: Pause) -> None:
    """In whatever order pauses arrive, and however often, the times come to the same."""

    def times(found: Pause) -> tuple[datetime, datetime]:
        return found.until, found.ends_at

    assert times(merged(one, two)) == times(merged(two, one))
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    assert merged(one, one) == one == merged(None, one)
    assert covers(merged(one, two), one)
    assert covers(merged(one, two), two)
    assert not covers(None, one)


@given(pauses(), pauses(), places)
def test_a_shorter_hint_lets_nobody_go_earlier(one: Pause, two: Pause, place: float) -> None:
    """Whatever is merged into a pause, no seat's time comes before that of either."""
    both = goes_at(merged(one, two), place=place, before=FAR)
    assert both >= goes_at(one, place=place, before=FAR)
    assert both >= goes_at(two, place=place, before=FAR)


@given(pauses(), places, moments | st.none())
def test_nobody_goes_before_the_end(found: Pause, place: float, due_at: datetime | None) -> None:
    """A seat goes between `until` and the end of the spread, or at its own later due time."""
    moment = goes_at(found, place=place, before=FAR, due_at=due_at)
    assert moment >= found.until
    assert moment <= found.ends_at or moment == due_at


def test_a_retry_that_is_due_after_the_pause_keeps_its_time() -> None:
    """It is not made to wait a second time, even when its time lies within the spread."""
    assert goes_at(pause(), place=0.9, before=FAR, due_at=at(21)) == at(21)
    assert goes_at(pause(), place=0.9, before=FAR, due_at=at(19)) == at(29)


def test_a_deadline_within_the_spread_cuts_it() -> None:
    """A seat whose job ends within the spread goes earlier in it, but not before its start."""
    assert goes_at(pause(), place=0.5, before=at(24)) == at(22)
    assert goes_at(pause(), place=0.5, before=at(20)) == at(25)  # too late in any case


def test_places_are_spread_and_stay() -> None:
    """Two thousand work keys fill every tenth of the spread about alike, each always the same."""
    keys = [f"{number:08x}" + "0" * 56 for number in range(0, 2**32, 2**32 // 2000)]
    tenths = [int(place_of(key) * 10) for key in keys]
    assert all(120 <= tenths.count(tenth) <= 280 for tenth in range(10))
    assert [int(place_of(key) * 10) for key in keys] == tenths


def test_a_pause_survives_the_round_trip() -> None:
    """A pause comes back from its document as it was; its path takes any model's name."""
    found = pause(model="org/model:tag with a / and more")
    path = pause_path(*found.key)
    assert from_document(Pause, to_document(found), path) == found
    assert path.count("/") == 1


def test_the_scope_tells_keys_apart_and_names_none() -> None:
    """Two keys at one endpoint are two scopes, the same key the same one; the key is not in it."""

    def scope(key: str) -> str:
        return load({"OPENAI_API_KEY": key}, concurrency=1)["openai"].pause_scope

    assert scope("sk-secret-one") != scope("sk-secret-two")
    assert scope("sk-secret-one") == scope("sk-secret-one")
    assert "secret" not in scope("sk-secret-one")


class Setting:
    """Two processes' pauses over one ledger, and what is done to it."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.here, self.there = (
            Pauses(self.world.ledger, self.clock, lambda: 0.0) for _ in range(2)
        )
        self.looks = 0

    def stored(self) -> Pause:
        [data] = [d for path, d in self.world.ledger.stored().items() if path == pause_path(*KEY)]
        return from_document(Pause, data, "p")

    def count_looks(self) -> None:
        inner = self.world.ledger.query

        async def counted(query: Query) -> list[Snapshot]:
            self.looks += 1
            await asyncio.sleep(0)
            return await inner(query)

        self.world.ledger.query = counted  # type: ignore[method-assign]

    def fail_commits(self, *errors: Exception | None) -> None:
        commit, script = self.world.ledger.commit, list(errors)

        async def unsteady(*writes: Write) -> datetime:
            if (error := script.pop(0) if script else None) is not None:
                raise error
            return await commit(*writes)

        self.world.ledger.commit = unsteady  # type: ignore[method-assign]


KEY = pause().key


async def test_what_one_process_tells_another_finds() -> None:
    """A pause that one process wrote is known to the other after its next look, until it ends."""
    setting = Setting()
    await setting.here.tell(setting.here.note(pause()))
    assert setting.there.find(*KEY) is None
    await setting.there.refresh()
    assert setting.there.find(*KEY) == pause()
    assert setting.there.find("other scope", "m0") is None
    assert setting.there.find("scope", "m1") is None
    setting.clock.advance(29.0)  # within the spread
    assert setting.there.find(*KEY) == pause()
    setting.clock.advance(1.0)
    assert setting.there.find(*KEY) is None


async def test_a_process_that_looks_within_the_spread_takes_part_in_it() -> None:
    """An instance that starts after `until` still learns of the spread."""
    setting = Setting()
    await setting.here.tell(setting.here.note(pause()))
    setting.clock.advance(25.0)
    await setting.there.refresh()
    assert setting.there.find(*KEY) == pause()


async def test_the_later_times_win_in_the_ledger() -> None:
    """Two processes write in either order: the document has the later of each time."""
    for first, second in ((pause(), LONGER), (LONGER, pause())):
        setting = Setting()
        await setting.here.tell(setting.here.note(first))
        await setting.there.tell(setting.there.note(second))
        assert setting.stored() == LONGER
        await setting.here.refresh()
        assert setting.here.find(*KEY) == LONGER == setting.there.find(*KEY)


LONGER = pause(until=at(40), ends_at=at(60))


async def test_a_new_pause_replaces_one_that_has_ended() -> None:
    """The document of a model is used again."""
    setting = Setting()
    await setting.here.tell(setting.here.note(pause()))
    setting.clock.advance(100.0)
    later = pause(until=at(120), ends_at=at(130))
    await setting.there.tell(setting.there.note(later))
    assert setting.stored() == later


async def test_lost_conflicts_are_tried_again() -> None:
    """A pause is written although others write the document at the same time."""
    setting = Setting()
    setting.fail_commits(WriteConflict("busy"), LedgerUnavailable("down"), WriteConflict("busy"))
    await setting.here.tell(setting.here.note(pause()))
    assert setting.stored() == pause()


async def test_a_burst_of_refusals_is_written_once() -> None:
    """Many refusals of one process that name the same pause make one write."""
    setting = Setting()
    pauses = [setting.here.note(pause()) for _ in range(50)]
    await asyncio.gather(*map(setting.here.tell, pauses))
    assert len(setting.world.ledger.history) == 1


@pytest.mark.parametrize(
    "error", [WriteConflict("busy"), LedgerUnavailable("down"), ValueError("broken")]
)
async def test_a_pause_that_cannot_be_written_is_only_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """After bounded tries it is given up with a log entry; this process still keeps it."""
    setting = Setting()
    setting.fail_commits(*[error] * 100)
    await asyncio.wait_for(setting.here.tell(setting.here.note(pause())), 5)
    assert setting.here.find(*KEY) == pause()
    assert "pause not written" in caplog.messages
    await setting.there.refresh()
    assert setting.there.find(*KEY) is None


async def test_the_tries_to_write_are_bounded() -> None:
    """However often others win, a pause costs a bounded number of commits."""
    setting, commits = Setting(), []

    async def contended(*writes: Write) -> datetime:
        commits.append(writes)
        raise WriteConflict("busy")

    setting.world.ledger.commit = contended  # type: ignore[method-assign]
    await setting.here.tell(setting.here.note(pause()))
    assert len(commits) == TELL_TRIES


async def test_one_look_serves_all_who_wait() -> None:
    """Many claims at once make one query, all know its result, and none asks while it is young."""
    setting = Setting()
    await setting.there.tell(setting.there.note(pause()))
    setting.count_looks()

    async def found() -> Pause | None:
        await setting.here.refresh()
        return setting.here.find(*KEY)

    assert await asyncio.gather(*(found() for _ in range(100))) == [pause()] * 100
    assert setting.looks == 1
    setting.clock.advance(1.9)
    await setting.here.refresh()
    assert setting.looks == 1
    setting.clock.advance(0.2)
    await setting.here.refresh()
    assert setting.looks == 2


async def test_a_look_whose_delivery_is_cancelled_is_taken_over() -> None:
    """When the delivery that looks is cancelled, those who wait for its look make their own."""
    setting = Setting()
    await setting.there.tell(setting.there.note(pause()))
    setting.count_looks()
    first, second = (asyncio.create_task(setting.here.refresh()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first, second])
    assert first.cancelled()
    setting.clock.advance(2.0)
    await setting.here.refresh()
    assert setting.here.find(*KEY) == pause()


async def test_a_failed_look_keeps_what_was_known(caplog: pytest.LogCaptureFixture) -> None:
    """A ledger that does not answer the look is logged and forgets no pause."""
    setting = Setting()
    setting.here.note(pause())

    async def down(query: Query) -> list[Snapshot]:
        raise LedgerUnavailable("down")

    setting.world.ledger.query = down  # type: ignore[method-assign]
    await setting.here.refresh()
    assert "pauses not read" in caplog.messages
    assert setting.here.find(*KEY) == pause()


async def test_the_watch_goes_on_after_a_failed_look() -> None:
    """A look that fails only delays the next one: one a second."""
    setting = Setting()
    inner, failures = setting.world.ledger.query, iter([LedgerUnavailable("down")] * 2)

    async def unsteady(query: Query) -> list[Snapshot]:
        if (error := next(failures, None)) is not None:
            raise error
        return await inner(query)

    setting.world.ledger.query = unsteady  # type: ignore[method-assign]
    await setting.here.tell(setting.here.note(pause()))
    watching = asyncio.create_task(setting.there.watch())
    await setting.clock.sleep(3.5)
    watching.cancel()
    await asyncio.wait([watching])
    assert watching.cancelled()
    assert setting.there.find(*KEY) == pause()


UNREADABLE = (
    {"v": 1},
    {"v": 2} | {name: value for name, value in to_document(pause()).items() if name != "v"},
    to_document(pause()) | {"until": "soon"},
    to_document(pause()) | {"until": "2026-11-29T12:00:20"},
    to_document(pause()) | {"model": 7},
    to_document(pause(model="another one")),
)


@pytest.mark.parametrize("data", UNREADABLE, ids=range(len(UNREADABLE)))
async def test_an_unreadable_pause_hides_no_other(
    data: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported once, holds nobody back, and the next pause of its model replaces it."""
    setting = Setting()
    other = pause(model="m1")
    await setting.world.ledger.commit(
        Create(path=pause_path(*KEY), data=data | {"ends_at": at(30)}),
        Create(path=pause_path(*other.key), data=to_document(other)),
    )
    for _ in range(3):
        await setting.here.refresh()
        setting.clock.advance(3.0)
    assert setting.here.find(*KEY) is None
    assert setting.here.find(*other.key) == other
    assert caplog.messages.count("pause unreadable") == 1
    await setting.here.tell(setting.here.note(LONGER))
    assert setting.stored() == LONGER


async def test_a_pause_written_again_is_seen_again() -> None:
    """A pause that another process has made longer is longer here after the next look."""
    setting = Setting()
    await setting.here.tell(setting.here.note(pause()))
    fields = to_document(replace(LONGER, code="overloaded"))
    await setting.world.ledger.commit(Update(path=pause_path(*KEY), fields=fields))
    await setting.here.refresh()
    assert setting.here.find(*KEY) == replace(LONGER, code="overloaded")
