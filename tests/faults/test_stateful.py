"""The state machine, run: it finds nothing in the code as it is, and each seeded mistake.

The short run takes the same examples each time, the long one (`make test-long`) 10,000 new ones, or
as many as `EMPANEL_EXAMPLES` says. Each seeded mistake is one that systems of this kind are known
for.
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from functions import (
    budgeting,
    evaluation,
    leasing,
    looking,
    outcome,
    reconciliation,
    replays,
    reuse,
    settlement,
    tenant_days,
)
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.memory import MemoryObjects
from functions.core import budgets
from functions.core.budgets import Caps, Reservations
from functions.core.documents import changes, day_fields, from_document, tenant_day_path
from functions.core.jobs import (
    Attempt,
    Evaluation,
    Job,
    JobState,
    Outcome,
    SeatRecord,
    TenantDay,
)
from functions.core.ports import DELETE, Create, Snapshot, StoredObject, Update, Write
from functions.dispatch import SeatMessage
from functions.evaluation import Delivery
from functions.leasing import Lease
from functions.looking import Seen
from functions.services import Services
from functions.web import push
from infra.local.emulators import EmulatorHosts
from tests.faults.emulated import EmulatedLedger
from tests.faults.machine import DAY, EmpanelMachine
from tests.faults.town import InstanceClock, Town
from tests.virtual_loop import LoopClock

LONG = int(os.environ.get("EMPANEL_EXAMPLES", "10000"))
EXAMPLES, STEPS = 250, 40
EMULATED = 12
UNTIL_FOUND = 1500


def run(
    machine: type[EmpanelMachine], examples: int, *, report: bool = True, fresh: bool = False
) -> None:
    """Run a machine, on new examples when they are to be `fresh`.

    Without `report` the first failure counts, and is not made smaller.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=not fresh,
            print_blob=True,
            phases=[Phase.generate, Phase.shrink] if report else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thousands of struck calls are no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_the_invariants_hold_in_any_order_of_events() -> None:
    """Whatever clients, time, providers and crashes do, in any order, no invariant breaks."""
    run(EmpanelMachine, EXAMPLES)


@pytest.mark.long
def test_the_invariants_hold_in_many_new_orders_of_events() -> None:
    """The same with examples that nobody has seen before."""
    run(EmpanelMachine, LONG, fresh=True)


def test_the_invariants_hold_on_the_emulator(emulator_hosts: EmulatorHosts) -> None:
    """The same on the real emulator, which in the end holds just what was committed."""

    class EmulatedMachine(EmpanelMachine):
        """The machine over the emulator, a project for each example."""

        async def town_of(self, clock_skews: list[float]) -> Town:
            """Return a town whose ledger is the emulator."""
            clock, bucket = LoopClock(self.loop), self.make_objects()
            project = f"test-{uuid.uuid4().hex[:12]}"
            self.real = FirestoreLedger(project, emulator_host=emulator_hosts.firestore)
            self.emulated = EmulatedLedger(clock, bucket, self.real)
            return Town(
                clock,
                skews=clock_skews,
                objects=bucket,
                ledger=self.emulated,
                tenant_caps=DAY,
            )

        def close(self) -> None:
            """Compare, then end the connection."""
            try:
                if hasattr(self, "emulated"):
                    assert self.do(self.emulated.differences()) == []
                    with self.loop.outside():
                        self.do(self.real.aclose())
            finally:
                super().close()

    run(EmulatedMachine, EMULATED)


class OverwritingObjects(MemoryObjects):
    """A bucket without `ifGenerationMatch=0`: the last object under a name wins."""

    async def create(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> StoredObject | None:
        """Store whatever is there already."""
        self._objects.pop(name, None)
        return await super().create(name, data, content_type=content_type, metadata=metadata)


class OverwritingMachine(EmpanelMachine):
    """The machine over such a bucket."""

    def make_objects(self) -> MemoryObjects:
        """Return an empty bucket."""
        return OverwritingObjects()


async def _blind_commit(
    services: Services, lease: Lease, after: Evaluation, create: Create | None = None
) -> Lease | None:
    """Write as if the lease were still held, whoever holds it."""
    committed = await services.ledger.commit(
        Update(path=lease.path, fields=changes(lease.evaluation, after))
    )
    return replace(lease, evaluation=after, update_time=committed)


def settle_without_holder(patch: pytest.MonkeyPatch) -> None:
    """A late holder settles whoever holds the lease now."""
    patch.setattr(leasing, "is_held_by", lambda state, holder, token: state is not None)


def release_without_token(patch: pytest.MonkeyPatch) -> None:
    """A late holder frees a lease that is another's now."""
    patch.setattr(outcome, "commit_as_holder", _blind_commit)


def reuse_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """A recorded output is taken for its object."""

    async def trust(services: Services, output: object) -> bool:
        return True

    patch.setattr(reuse, "output_exists", trust)


def ack_before_commit(patch: pytest.MonkeyPatch) -> None:
    """The delivery is answered first and worked on afterwards."""
    work = evaluation.evaluate
    background: set[asyncio.Task[Delivery]] = set()

    async def ack_first(services: Services, message: SeatMessage, *, until: float) -> Delivery:
        task = asyncio.create_task(work(services, message, until=until))
        background.add(task)
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return Delivery.ENDED

    patch.setattr(push, "evaluate_seat", ack_first)


def timer_dropped_without_a_terminal_record(patch: pytest.MonkeyPatch) -> None:
    """Repair takes an open job off its timer once it has published its seats again."""

    def never_again(services: Services, job: Job, found: Snapshot) -> Update:
        fields = {"check_at": DELETE}
        return Update(path=found.path, fields=fields, if_updated_at=found.update_time)

    patch.setattr(reconciliation, "_next_check", never_again)


def refund_of_an_unknown_attempt(patch: pytest.MonkeyPatch) -> None:
    """A request without an answer is given back to the budget, as if it had cost nothing."""
    unused = budgets.unused

    def too_much(held: Reservations, seat: int, own: Iterable[Attempt]) -> frozenset[str]:
        return unused(held, seat, (a for a in own if a.outcome is not Outcome.UNKNOWN))

    patch.setattr(budgeting, "unused", too_much)


def cost_recorded_after_the_call(patch: pytest.MonkeyPatch) -> None:
    """An attempt reserves nothing before its call: what it cost is added afterwards."""
    reserve = budgets.reserve

    def nothing(held: Reservations, wanted: str, worst: int, caps: Caps) -> Reservations | None:
        return reserve(held, wanted, 0, caps)

    patch.setattr(budgeting, "reserve", nothing)


def day_trued_up_before_the_close(patch: pytest.MonkeyPatch) -> None:
    """The day is written first, and the commit that can happen only once comes after it."""
    commit = tenant_days.commit_trued_up

    async def day_first(
        services: Services, job: Job, attempts: Iterable[Attempt], head: Update, *others: Write
    ) -> datetime:
        own = tuple(attempts)
        if job.day is not None and not job.day.final:
            real = budgets.trued_up(job, job.day, own)
            path = tenant_day_path(job.tenant, job.day.day)
            [found] = await services.ledger.get(path)
            day = from_document(TenantDay, found.data or {}, path)
            after = budgets.moved(day, job.day, real)
            fields = {"requests": after.requests, "nano_usd": after.nano_usd}
            await services.ledger.commit(Update(path=path, fields=fields))
            head = replace(head, fields={**head.fields, **day_fields(real)})
            return await services.ledger.commit(*others, head)
        return await commit(services, job, own, head, *others)

    patch.setattr(settlement, "commit_trued_up", day_first)


def close_counted_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The seat that is about to be settled counts as ended, and the run is closed first."""
    settle = settlement.settle_as_holder

    async def close_first(
        services: Services, job: Job, lease: Lease, after: Evaluation, record: SeatRecord
    ) -> bool:
        records, now = await settlement.read_seats(services, job)
        ended = [*(other for other in records if other is not None), record]
        if len(ended) == len(job.seats):
            await settlement.close_run(services, job, JobState.SUCCEEDED, "early", ended, now)
        return await settle(services, job, lease, after, record)

    patch.setattr(outcome, "settle_as_holder", close_first)


def expiry_by_the_local_clock(patch: pytest.MonkeyPatch) -> None:
    """An instance whose own clock is ahead of the server's believes its own."""
    look = looking.peek

    async def by_the_wall(services: Services, message: SeatMessage) -> Seen | None:
        seen = await look(services, message)
        return None if seen is None else replace(seen, now=max(seen.now, _wall(services)))

    patch.setattr(evaluation, "peek", by_the_wall)


def _wall(services: Services) -> datetime:
    return cast(InstanceClock, services.clock).wall_now()


def double_dispatch_at_replay(patch: pytest.MonkeyPatch) -> None:
    """A replay sends every seat out again, those that have an answer too."""
    plan = replays._plan

    async def everything(services: Services, job: Job, found: Snapshot) -> replays.Plan:
        planned = await plan(services, job, found)
        return replace(planned, open_seats=tuple(range(len(job.seats))), carried=())

    patch.setattr(replays, "_plan", everything)


def store_without_precondition(patch: pytest.MonkeyPatch) -> None:
    """The last object under a name wins: see `OverwritingMachine`."""


MISTAKES: tuple[tuple[Any, type[EmpanelMachine], str], ...] = (
    (settle_without_holder, EmpanelMachine, "holder_and_token_guard_every_write"),
    (release_without_token, EmpanelMachine, "holder_and_token_guard_every_write"),
    (store_without_precondition, OverwritingMachine, "success_implies_the_object"),
    (reuse_without_a_look, EmpanelMachine, "success_implies_the_object"),
    (ack_before_commit, EmpanelMachine, "acked_work_is_on_record"),
    (timer_dropped_without_a_terminal_record, EmpanelMachine, "have_a_timer|has_a_timer"),
    (refund_of_an_unknown_attempt, EmpanelMachine, "every_request_of_a_capped_run_is_reserved"),
    (cost_recorded_after_the_call, EmpanelMachine, "every_request_of_a_capped_run_is_reserved"),
    (day_trued_up_before_the_close, EmpanelMachine, "a_day_is_the_sum_of_its_runs"),
    (close_counted_before_the_commit, EmpanelMachine, "a_run_closes_after_its_seats"),
    (double_dispatch_at_replay, EmpanelMachine, "replays_carry_what_was_there"),
    (expiry_by_the_local_clock, EmpanelMachine, "holder_and_token_guard_every_write"),
)


# These take half a minute each; `test_seeded_mistakes.py` finds the same mistakes in single scenes.
SLOWLY_FOUND = (
    "reuse_without_a_look",
    "settle_without_holder",
    "double_dispatch_at_replay",
    "expiry_by_the_local_clock",
    "release_without_token",
    "timer_dropped_without_a_terminal_record",
)  # each takes ten seconds to a minute: they are in `make test-long`


@pytest.mark.parametrize(
    ("mistake", "machine", "invariant"),
    [
        pytest.param(*m, marks=[pytest.mark.long] if m[0].__name__ in SLOWLY_FOUND else [])
        for m in MISTAKES
    ],
    ids=[m[0].__name__ for m in MISTAKES],
)
def test_a_seeded_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch, mistake: Any, machine: type[EmpanelMachine], invariant: str
) -> None:
    """The machine breaks the invariant that the mistake is about, within its examples."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match=invariant):
        run(machine, UNTIL_FOUND, report=False)
