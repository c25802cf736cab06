"""Planted secrets on a running stack: each is found where it belongs, and nowhere else.

Marks stand in facts, rubric, answers, keys and a receiver's words; the provider repeats the API key
in whatever it says. Afterwards everything that the stack has written or answered is searched.
"""

import base64
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.records import Document
from tests.e2e.site import Json, Site, dumped, open_site, panel
from tests.e2e.waiting import until
from tests.receiver import Receiver, receiving, status
from tests.stub import Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _mark(name: str) -> str:
    return f"{name}{secrets.token_hex(12)}"


FACT, RUBRIC, ANSWER, PROSE = map(_mark, ("fact", "rubric", "answer", "prose"))
PROVIDER_KEY = f"sk-{secrets.token_urlsafe(24)}"
WEBHOOK_SECRET = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
RECEIVER = _mark("receiver")
WRONG_KEY = f"ek_{secrets.token_urlsafe(32)}"
ERROR = _mark("error")
REPEATED = f"cannot use Bearer {PROVIDER_KEY}: {ERROR}"


@dataclass(frozen=True, kw_only=True)
class Traces:
    """Everything that was left behind: by kind and name, with its content."""

    logs: dict[str, str] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    webhooks: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for kind in ("logs", "documents", "objects", "answers", "webhooks"):
            for name, content in getattr(self, kind).items():
                yield f"{kind}: {name}", content

    def where(self, text: str) -> set[str]:
        """Which of all have the text."""
        return {name for name, content in self if text in content}


async def batched(site: Site, found: Traces, url: str) -> str:
    """Submit lines that hold the marks, one of them refused; the job of the good one."""
    good = panel("good-2", "a", notify={"url": url})
    good["facts"]["planted"] = FACT
    good["rubric"]["instructions"] = f"Score it: {RUBRIC}"
    refused = {**panel("good-3", "a"), "unknown": FACT, "labels": {"a": WRONG_KEY * 100}}
    lines = [dumped(good), dumped(refused), f'{{"facts": {FACT}'.encode()]
    headers = {"Content-Type": "application/x-ndjson"}
    content = b"\n".join(lines)
    answer = await site.call("POST", "/v1/jobs:batch", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    answers = [json.loads(line) for line in answer.content.splitlines()]
    assert [each["status"] for each in answers] == [202, 422, 400]
    found.answers["the batch"] = f"{answer.headers} {answer.text}"
    return str(answers[0]["job"]["id"])


async def work(site: Site, receiver: Receiver, found: Traces) -> list[Json]:
    """Run jobs that end in every way a provider's words can get into a record."""
    answer = {"rationale": ANSWER, "score": 50}
    ruled = {
        "good": ScriptedResponse(content=json.dumps(answer)),
        "refused": ScriptedResponse(status=400, text=REPEATED),
        "broken": ScriptedResponse(status=500, text=REPEATED),
        "limited": ScriptedResponse(
            status=429, headers={"retry-after": "86401"}, body={"error": {"message": REPEATED}}
        ),
        "prose": ScriptedResponse(content=f"{PROSE} {PROVIDER_KEY} {FACT}"),
        "beside": ScriptedResponse(content=json.dumps({"score": 50, PROSE: PROVIDER_KEY})),
        "garbled": ScriptedResponse(text=f"<html>{REPEATED}"),
    }
    rules = [Rule(label=f"{name}-*", always=reply) for name, reply in ruled.items()]
    await site.stub.script(*rules)
    jobs = []
    for name in ruled:
        body = panel(f"{name}-1", "a", notify={"url": receiver.url})
        body["facts"]["planted"] = FACT
        body["rubric"]["instructions"] = f"Score it: {RUBRIC}"
        body["policy"] = {"max_attempts": 2, "deadline_seconds": 120}
        jobs.append(await site.accepted(body))
    jobs.append(await batched(site, found, receiver.url))
    return await site.ended(*jobs, timeout_seconds=150)


async def strange_requests(site: Site) -> Iterator[httpx.Response]:
    """Requests that are refused, with secrets where they do not belong."""
    key = site.stack.info.api_key
    body = panel("strange", "a", unknown=FACT)
    basic = {"Authorization": f"Basic {key}"}
    return iter(
        [
            await site.call("POST", "/v1/jobs", json=body),
            await site.call("POST", "/v1/jobs", content=f'{{"facts": {FACT}'.encode()),
            await site.call("GET", f"/v1/jobs?owner={FACT}&nonsense={key}"),
            await site.call("GET", f"/v1/jobs/{FACT}"),
            await site.call("GET", "/v1/jobs", api_key=WRONG_KEY),
            await site.client.get(f"{site.stack.info.api}/v1/jobs", headers=basic),
            await site.client.get(f"{site.stack.info.api}/v1/jobs?key={key}"),
            await site.push(f'{{"message": "{FACT}"}}'.encode(), WRONG_KEY),
            await site.push(b"{}", f"{site.stack.info.push_token}x"),
            await site.push(b"{}", f"{site.stack.info.push_token}.x"),
        ]
    )


async def read_everything(site: Site, jobs: list[Json], found: Traces) -> None:
    """Read all that the API shows of the jobs."""
    paths = ["/v1/jobs", "/v1/incidents", "/v1/audits"]
    for job in jobs:
        paths += [f"/v1/jobs/{job['id']}{part}" for part in ("", "/attempts", "/events")]
        paths += [f"/v1/jobs/{job['id']}/report?partial=true"]
        paths += [f"/v1/notifications/{job['terminal']['decision_id']}.1"]
    for path in paths:
        answer = await site.call("GET", path)
        assert answer.status_code == 200, answer.text
        found.answers[path] = f"{answer.headers} {answer.text}"


async def all_documents(site: Site) -> list[Document]:
    """Every document of the project, whatever its collection."""
    return await site.ledger.group("")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traces(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Traces, dict[str, str]]]:
    """What a stack has left behind that had everything planted, and its own secrets by name."""
    folder = tmp_path_factory.mktemp("secrets")
    environment = {
        "OPENAI_API_KEY": PROVIDER_KEY,
        "EMPANEL_WEBHOOK_SECRETS": WEBHOOK_SECRET,
        "EMPANEL_WEBHOOK_ALLOW_LOOPBACK": "1",
    }
    found = Traces()
    async with (
        open_site(emulator_hosts, folder, environment=environment) as site,
        receiving(*[status(500, body=RECEIVER.encode())] * 3) as receiver,
    ):
        jobs = await work(site, receiver, found)
        await until(_delivered(site, jobs), all, what="all are told", timeout_seconds=120)
        for answer in await strange_requests(site):
            assert answer.status_code >= 400
            found.answers[f"{answer.request.method} {answer.request.url}"] = answer.text
        await read_everything(site, jobs, found)
        for document in await all_documents(site):
            found.documents[document.path] = json.dumps(document.data)
        for name in await site.bucket.names():
            uri = f"gs://{site.stack.info.bucket}/{name}"
            found.objects[name] = (await site.bucket.read(uri)).decode()
        for number, received in enumerate(receiver.received):
            found.webhooks[str(number)] = f"{received.headers} {received.body.decode()}"
        own = {
            "the API key": site.stack.info.api_key,
            "the push token": site.stack.info.push_token,
            "the token's signature": site.stack.info.push_token.split(".")[2],
        }
    for path in sorted((folder / ".local").rglob("*")):
        if path.is_file():
            found.logs[path.name] = path.read_text(errors="replace")
    yield found, own


def _delivered(site: Site, jobs: list[Json]) -> Callable[[], Awaitable[list[bool]]]:
    async def look() -> list[bool]:
        names = [f"{job['terminal']['decision_id']}.1" for job in jobs]
        shown = [await site.read(f"/v1/notifications/{name}") for name in names]
        return [one["state"] == "delivered" for one in shown]

    return look


Found = tuple[Traces, dict[str, str]]


async def test_the_search_sees_everything(traces: Found) -> None:
    """Each kind of trace is there, and marks are found where they belong: the search can fail."""
    found, _ = traces
    assert len(found.logs) >= 5
    assert {path.split("/")[0] for path in found.documents} >= {
        "jobs", "evaluations", "notifications", "api_keys"
    }  # fmt: skip
    assert found.where(FACT)
    assert found.where(ANSWER)
    assert len(found.webhooks) >= 7
    assert "attempts" in str(found.answers)
    assert [name for name, text in found.answers.items() if "data: {" in text]  # a stream
    assert '"status":422' in found.answers["the batch"]


async def test_keys_are_nowhere(traces: Found) -> None:
    """The provider's key, which the provider repeated; the API's; the webhooks'; the callers'."""
    found, own = traces
    planted = {
        "the provider's key": PROVIDER_KEY,
        "most of it": PROVIDER_KEY[4:-4],
        "the webhooks' secret": WEBHOOK_SECRET,
        "its bytes": WEBHOOK_SECRET.removeprefix("whsec_"),
        "a wrong key": WRONG_KEY,
        **own,
    }
    # Two answers name their own request's address, which has the key in it: that is our doing.
    places = {name: found.where(secret) for name, secret in planted.items()}
    sent = {f"answers: {name}" for name in found.answers if own["the API key"] in name}
    assert {name: where - sent for name, where in places.items()} == {
        name: set() for name in planted
    }


async def test_facts_and_rubric_stand_in_their_job_alone(traces: Found) -> None:
    """In no log, object, answer or webhook; in no other document, and there as inputs only."""
    found, _ = traces
    for mark in (FACT, RUBRIC):
        where = found.where(mark)
        assert {name.split("/")[0] for name in where} == {"documents: jobs"}
        for name in where:
            data = json.loads(found.documents[name.removeprefix("documents: ")])
            assert mark not in json.dumps({k: v for k, v in data.items() if k != "inputs"})


async def test_a_providers_error_is_kept_without_the_key(traces: Found) -> None:
    """Its words are the reason that a seat shows, in its records; logs and webhooks lack them."""
    found, _ = traces
    where = found.where(ERROR)
    assert any(name.startswith("documents: evaluations/") for name in where)
    kinds = ("documents: evaluations/", "documents: jobs/", "answers: ")
    assert all(name.startswith(kinds) for name in where)


async def test_answers_stand_in_objects_and_reports_alone(traces: Found) -> None:
    """What a model said is in no log, document or webhook."""
    found, _ = traces
    where = found.where(ANSWER)
    assert any(name.startswith("objects: outputs/") for name in where)
    assert all(
        name.startswith("objects: outputs/") or name.endswith("/report?partial=true")
        for name in where
    )


async def test_what_was_no_answer_is_kept_nowhere(traces: Found) -> None:
    """Prose instead of JSON, and a receiver's words: neither logged nor stored."""
    found, _ = traces
    assert {mark: found.where(mark) for mark in (PROSE, RECEIVER)} == {
        PROSE: set(),
        RECEIVER: set(),
    }
