"""What a drill has at hand: interfaces, the ports behind them, and a first job to learn from."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from functions.acceptance import accept
from functions.adapters.clock import SystemClock
from functions.adapters.firestore import FirestoreLedger
from functions.adapters.gcs import GcsObjects
from functions.adapters.pubsub import PubsubPublisher
from functions.bootstrap import wire
from functions.core.documents import from_snapshot, job_path, terminal_path
from functions.core.errors import EmpanelError
from functions.core.identities import name_in_bucket
from functions.core.jobs import Job, Policy
from functions.core.ports import Snapshot
from functions.core.submissions import SeatRequest, Submission
from functions.core.verdicts import CallFailure, ProviderAnswer
from functions.dispatch import dispatch
from functions.drill.accounting import ENDED
from functions.drill.deployment import Deployment
from functions.drill.faults import LossyPublisher, StandIn, answer_at_once
from functions.drill.interface import Interface, open_interface
from functions.services import Services

T = TypeVar("T")
Answer = Callable[[], Awaitable[ProviderAnswer | CallFailure]]

LOOK_SECONDS = 0.25
FAR_SECONDS = 60.0  # when repair looks at work that the drill itself is to do
NEAR_SECONDS = 1.0  # when repair looks at what the drill has lost
OWNER = "drill"
RUBRIC = {
    "name": "drill",
    "instructions": "This is a drill. Any score will do.",
    "output_schema": {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 100}},
        "required": ["score"],
        "additionalProperties": False,
    },
}


class NotSeen(EmpanelError):
    """What a drill waits for did not come in time."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Whom a drill's jobs ask."""

    provider: str
    model: str


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """What a job of this deployment tells: its tenant, and the digest of the endpoint it asks."""

    tenant: str
    endpoint: str


@dataclass(frozen=True, kw_only=True)
class Site:
    """One deployment as drills use it. Every wait ends after `patience_seconds`."""

    deployment: Deployment
    interface: Interface
    clock: SystemClock
    ledger: FirestoreLedger
    objects: GcsObjects
    publisher: PubsubPublisher
    asked: Asked
    pinned: Pinned
    patience_seconds: float
    auditing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def services(
        self,
        *,
        dropped: Iterable[str] = (),
        check_seconds: float = FAR_SECONDS,
        answer: Answer = answer_at_once,
    ) -> Services:
        """Return the product's services over the deployment's ports, as a process would have them.

        `dropped` names topics whose messages are lost on the way.
        """
        stand_in = StandIn(name=self.asked.provider, endpoint=self.pinned.endpoint, answer=answer)
        return wire(
            replace(self.deployment.settings, repair_seconds=check_seconds),
            clock=self.clock,
            ledger=self.ledger,
            objects=self.objects,
            publisher=LossyPublisher(inner=self.publisher, dropped=frozenset(dropped)),
            providers={stand_in.name: stand_in},
        )

    def body(self, drill: str, seats: int = 1, **policy: Any) -> dict[str, Any]:
        """Return a job of a drill: a question nobody has asked before."""
        return job_body(drill, self.asked, seats, **policy)

    async def submit(self, drill: str, seats: int = 1, **policy: Any) -> str:
        """Submit a job through the API; return its ID."""
        return await self.interface.submit(self.body(drill, seats, **policy), _new_key())

    async def accept_unsent(self, drill: str, check_seconds: float = FAR_SECONDS) -> Job:
        """Accept a job of one seat whose message is lost on the way to its topic.

        Repair looks at it after `check_seconds`.
        """
        topics = {self.deployment.settings.evaluate_topic}
        services = self.services(dropped=topics, check_seconds=check_seconds)
        body = self.body(drill)
        submission = Submission(
            tenant=self.pinned.tenant,
            body=body,
            facts=body["facts"],
            rubric=body["rubric"],
            seats=tuple(SeatRequest(**seat) for seat in body["seats"]),
            policy=Policy(required_seats=len(body["seats"]), **body["policy"]),
            owner=body["owner"],
            labels=body["labels"],
            idempotency_key=_new_key(),
        )
        return (await accept(services, submission)).job

    async def send(self, job: Job, seats: Iterable[int], times: int = 1) -> None:
        """Publish the messages of a job's seats, each so many times."""
        wanted = [index for index in seats for _ in range(times)]
        await dispatch(self.services(), job, wanted)

    async def record(self, job: str) -> Job:
        """Return a job as it is on record."""
        return await read_job(self.ledger, job)

    async def terminal(self, job: str, run: int = 1) -> Snapshot:
        """Return the terminal record of a run as it is on record."""
        [found] = await self.ledger.get(terminal_path(job, run))
        return found

    async def ended(self, *jobs: str, run: int = 1) -> list[dict[str, Any]]:
        """Wait until every job's run has ended; the jobs as the API shows them then."""
        return list(await asyncio.gather(*(self._ended(job, run) for job in jobs)))

    async def _ended(self, job: str, run: int) -> dict[str, Any]:
        return await self.until(
            lambda: self.interface.read(f"/v1/jobs/{job}"),
            lambda seen: seen["run"] >= run and seen["state"] in ENDED,
            f"{job} ends",
        )

    async def lose_object(self, output: dict[str, Any]) -> None:
        """Delete an output's object, as an accident in the bucket would.

        Raises:
            NotSeen: it was not there.
        """
        name = name_in_bucket(output["uri"])
        if not await self.objects.delete(name, output["generation"]):
            raise NotSeen(f"{output['uri']} was gone before the drill deleted it")

    async def until(
        self, look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], what: str
    ) -> T:
        """Look again and again until what is seen holds, and return it.

        Raises:
            NotSeen: it does not hold in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience_seconds
        while not holds(seen := await look()):
            if loop.time() > deadline:
                raise NotSeen(f"{what}: not so after {self.patience_seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)
        return seen


@asynccontextmanager
async def open_site(
    deployment: Deployment, asked: Asked, *, patience_seconds: float
) -> AsyncIterator[Site]:
    """Open a deployment and let it do one job with no fault at all, which the drills learn from.

    Raises:
        InterfaceFailed, NotSeen, LedgerUnavailable: it does not work without a fault either.
    """
    settings = deployment.settings
    clock = SystemClock()
    ledger = FirestoreLedger(
        settings.project, emulator_host=settings.firestore_emulator, clock=clock
    )
    objects = GcsObjects(settings.bucket, emulator_host=settings.storage_emulator)
    publisher = PubsubPublisher(settings.project, emulator_host=settings.pubsub_emulator)
    try:
        async with open_interface(deployment) as interface:
            site = Site(
                deployment=deployment,
                interface=interface,
                clock=clock,
                ledger=ledger,
                objects=objects,
                publisher=publisher,
                asked=asked,
                pinned=Pinned(tenant="", endpoint=""),
                patience_seconds=patience_seconds,
            )
            yield replace(site, pinned=await _pinned(site))
    finally:
        await publisher.aclose()
        await objects.aclose()
        await ledger.aclose()


async def _pinned(site: Site) -> Pinned:
    job = await site.submit("no-fault")
    [ended] = await site.ended(job)
    if ended["state"] != "succeeded":
        errors = [seat["error"] for seat in ended["seats"] if seat["error"]]
        raise NotSeen(f"a job with no fault ended {ended['state']}: {json.dumps(errors)}")
    record = await site.record(job)
    return Pinned(tenant=record.tenant, endpoint=record.seats[0].endpoint)


async def read_job(ledger: FirestoreLedger, job: str) -> Job:
    """Return a job that must be on record.

    Raises:
        NotSeen: it is not.
    """
    [found] = await ledger.get(job_path(job))
    if (record := from_snapshot(Job, found)) is None:
        raise NotSeen(f"{job} is not on record")
    return record


def job_body(drill: str, asked: Asked, seats: int, **policy: Any) -> dict[str, Any]:
    """Return a job of a drill, its seats the same question in several samples."""
    return {
        "facts": {"drill": drill, "nonce": secrets.token_hex(8)},
        "rubric": RUBRIC,
        "seats": [
            {
                "seat": f"seat-{sample}",
                "provider": asked.provider,
                "model": asked.model,
                "sample": sample,
            }
            for sample in range(seats)
        ],
        "policy": {"deadline_seconds": 900, **policy},
        "owner": OWNER,
        "labels": {"drill": drill},
    }


def _new_key() -> str:
    return f"drill-{secrets.token_hex(16)}"
