"""Batches on the running stack: every line answered in its place, and exactly its job on record.

Cases G04, G05 and G17 of public reports, as lines of a batch.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Json, Site, dumped, open_site, panel

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/jobs:batch"
NDJSON = {"Content-Type": "application/x-ndjson"}
GOOD = 40
MANY = 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("batch")) as running:
        yield running


async def answered(site: Site, lines: Sequence[bytes], end: bytes = b"\n") -> list[Json]:
    """Send the lines; the answers, one for each."""
    content = b"".join(line + end for line in lines)
    answer = await site.call("POST", PATH, content=content, headers=NDJSON)
    assert answer.status_code == 200, answer.text
    answers = [json.loads(line) for line in answer.content.splitlines()]
    assert [each["line"] for each in answers] == list(range(1, len(lines) + 1))
    return answers


async def recorded(site: Site) -> set[str]:
    """The IDs of all jobs on record."""
    return {document.path.split("/")[-1] for document in await site.ledger.group("jobs")}


def keyed(label: str, key: str) -> bytes:
    return dumped({**panel(label, "a"), "idempotency_key": key})


async def test_each_line_has_its_answer_and_each_job_is_recorded_once(site: Site) -> None:
    """Good, bad, equal and conflicting lines, sent twice: the ledger holds the good jobs only."""
    before = await recorded(site)
    good = [keyed(f"batch-{n}", f"key-{n}") for n in range(GOOD)]
    others = {
        b"not JSON": 400,
        b"": 400,
        dumped(panel("batch-bad", seats=[])): 422,
        dumped({**panel("batch-bad"), "idempotency_key": "\u00e9"}): 422,
        keyed("another question", "key-0"): 422,  # G04
    }
    same = {  # G05: spelled otherwise, or without its key's place in the order
        keyed("batch-1", "key-1").replace(b": ", b" :  "): 200,
        keyed("batch-2", "key-2"): 200,
    }
    lines = [*good, *others, *same, *good[:2]]
    expected = [202] * GOOD + [*others.values(), *same.values(), 200, 200]
    answers = await answered(site, lines, end=b"\r\n")
    assert [answer["status"] for answer in answers] == expected

    jobs = [answer["job"]["id"] for answer in answers[:GOOD]]
    assert await recorded(site) - before == set(jobs)
    assert len(set(jobs)) == GOOD
    assert [answer["job"]["id"] for answer in answers[-4:]] == [jobs[1], jobs[2], jobs[0], jobs[1]]
    ended = await site.ended(*jobs)
    assert {job["state"] for job in ended} == {"succeeded"}
    again = await answered(site, lines)
    assert [answer["status"] for answer in again] == [200] * GOOD + expected[GOOD:]
    assert [answer["job"] for answer in again[:GOOD]] == ended
    assert await recorded(site) - before == set(jobs)
    assert await site.requests("batch-") == GOOD


async def test_the_command_line_sends_a_file_and_may_send_it_again(
    site: Site, tmp_path: Path
) -> None:
    """One answer a line on standard output, 3 for the one that is bad, the same jobs again."""
    before = await recorded(site)
    file = tmp_path / "jobs.ndjson"
    file.write_bytes(b"\n".join([keyed("file-1", "f1"), b"", b"bad", keyed("file-2", "f2")]))
    told = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "functions", "batch", str(file), "--json"),
            env={"EMPANEL_URL": site.stack.info.api, "EMPANEL_API_KEY": site.stack.info.api_key},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 3
        told.append([json.loads(line) for line in output.splitlines()])
    first, second = told
    assert [(each["line"], each["status"]) for each in first] == [(1, 202), (3, 400), (4, 202)]
    assert [(each["line"], each["status"]) for each in second] == [(1, 200), (3, 400), (4, 200)]
    jobs = {each["job"]["id"] for each in first if "job" in each}
    assert jobs == {each["job"]["id"] for each in second if "job" in each}
    assert await recorded(site) - before == jobs


async def test_a_restart_in_the_middle_answers_every_line(site: Site) -> None:
    """SIGTERM while lines are accepted (G17): no dropped connection, what was not done says 503.

    The lines that were accepted are on record; all of them are after the batch is sent again.
    """
    before = await recorded(site)
    slow = {"policy": {"deadline_seconds": 600}}
    lines = [dumped(panel(f"restart-{n}", "a", **slow)) for n in range(MANY)]
    sending = asyncio.create_task(answered(site, lines))
    while len(await recorded(site)) < len(before) + 20:
        assert not sending.done()
    pid = site.stack.kill("api", signal.SIGTERM)
    answers = await sending
    await site.stack.restarted("api", pid)

    found = [answer["status"] for answer in answers]
    assert set(found) == {202, 503}
    for answer in answers:
        if answer["status"] == 503:
            assert answer["problem"]["retry_after_seconds"] >= 1
    accepted = {answer["job"]["id"] for answer in answers if answer["status"] == 202}
    assert accepted <= await recorded(site) - before
    again = await answered(site, lines)
    assert {answer["status"] for answer in again} <= {200, 202}
    jobs = {answer["job"]["id"] for answer in again}
    assert len(jobs) == MANY
    assert await recorded(site) - before == jobs
