"""Traces, metrics and log lines of a real stack: processes, topics, and a collector on loopback."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.local.emulators import EmulatorHosts
from tests.e2e.site import Site, open_site, panel
from tests.e2e.waiting import until
from tests.otlp import Collector, Told, collecting

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET = "3d77-planted"
SEATS, JOBS = 4, 3
MODELS = tuple("abcd")
ONCE = {"model name sighted"}  # by the process that meets a name first, however many seats follow
ABOUT_PROCESSES = {"shutting down"}


def logged(folder: Path) -> list[dict[str, Any]]:
    """Every line that the function processes printed about jobs."""
    lines = [line for log in folder.rglob("*.log") for line in log.read_text().splitlines()]
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [e for e in entries if e.get("logger") == "empanel" and e["message"] not in ONCE]


async def played(site: Site) -> list[str]:
    """Submit the jobs, the first one in a trace of its caller's; their IDs once all have ended."""
    first = panel("told-0", *MODELS, owner="team", labels={"note": SECRET})
    first["facts"]["secret"] = SECRET
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    answer = await site.call("POST", "/v1/jobs", json=first, headers=headers)
    assert answer.status_code == 202, answer.text
    others = [await site.accepted(panel(f"told-{n}", *MODELS)) for n in range(1, JOBS)]
    jobs = [str(answer.json()["id"]), *others]
    ended = await site.ended(*jobs)
    assert {job["state"] for job in ended} == {"succeeded"}
    return jobs


async def test_one_trace_through_all_processes_and_few_lines(
    emulator_hosts: EmulatorHosts, tmp_path: Path
) -> None:
    """The caller's trace, five kinds of spans by three services; metrics come with the SIGTERM."""
    async with collecting() as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "EMPANEL_REPAIR_SECONDS": "60",  # a repair is no part of the normal path
        }
        async with open_site(emulator_hosts, tmp_path, environment=environment) as site:
            jobs = await played(site)
            attempts = [a for job in jobs for a in await site.attempts(job)]
            assert len(attempts) == SEATS * JOBS
            told = await until(
                lambda: _in_trace(collector),
                lambda found: len(found) >= 2 + 2 * SEATS + 1,
                what="the trace's spans are there",
            )
        _check_trace(told, jobs[0])
        _check_metrics(collector, attempts)
        sent = b"".join(request.body for request in collector.requests)
        assert SECRET.encode() not in sent
    entries = [e for e in logged(tmp_path) if e["message"] not in ABOUT_PROCESSES]
    assert Counter(e["message"] for e in entries) == {
        "job accepted": JOBS,
        "attempt ended": SEATS * JOBS,
        "run closed": JOBS,
    }
    assert len(entries) / (SEATS * JOBS) <= 3
    assert SECRET not in json.dumps(entries)
    ended = [e for e in entries if e["message"] == "attempt ended"]
    for entry in ended:
        assert {"job", "run", "seat", "attempt", "holder", "owner", "severity"} <= entry.keys()
        assert "logging.googleapis.com/trace" in entry


async def _in_trace(collector: Collector) -> list[Told]:
    return [told for told in collector.spans if told.trace == TRACE]


def _check_trace(told: list[Told], job: str) -> None:
    spans = {one.span.span_id.hex(): one for one in told}
    names = Counter(one.span.name for one in told)
    assert names == {
        "POST /v1/jobs": 1,
        "send empanel-evaluate": 1,
        "process empanel-evaluate": SEATS,
        **{f"chat {model}": 1 for model in MODELS},
        "process empanel-notify": 1,
    }
    assert {one.span.name: one.service for one in told} == {
        "POST /v1/jobs": "empanel-api",
        "send empanel-evaluate": "empanel-api",
        "process empanel-evaluate": "empanel-evaluate",
        **{f"chat {model}": "empanel-evaluate" for model in MODELS},
        "process empanel-notify": "empanel-notify",
    }
    for one in told:
        above = spans.get(one.span.parent_span_id.hex())
        match one.span.name.split()[0]:
            case "POST":
                assert one.span.parent_span_id.hex() == PARENT
            case "chat":
                assert above is not None
                assert above.span.name == "process empanel-evaluate"
                assert one.attributes["empanel.job"] == job
                assert one.attributes["gen_ai.provider.name"] == "openai"
                assert one.attributes["server.address"] == "127.0.0.1"
                assert int(one.attributes["gen_ai.usage.output_tokens"]) > 0
            case _:
                assert above is not None
                assert above.span.name == "POST /v1/jobs"


def _check_metrics(collector: Collector, attempts: list[Any]) -> None:
    """What evaluate has counted is what the interface shows."""
    found = {metric.name: metric for metric in collector.metrics["empanel-evaluate"]}
    ended = found["empanel.attempts.ended"].sum.data_points
    assert sum(point.as_int for point in ended) == len(attempts)
    calls = found["gen_ai.client.operation.duration"].histogram.data_points
    assert sum(point.count for point in calls) == len(attempts)
    waits = found["empanel.queue.wait"].histogram.data_points
    assert sum(point.count for point in waits) == len(attempts)
    accepted = {metric.name: metric for metric in collector.metrics["empanel-api"]}
    runs = accepted["empanel.runs.accepted"].sum.data_points
    assert sum(point.as_int for point in runs) == JOBS


@pytest.mark.long
async def test_a_collector_that_never_answers_changes_nothing_for_jobs(
    emulator_hosts: EmulatorHosts, tmp_path: Path
) -> None:
    """Jobs end, processes stop in time, and each process has warned."""
    async with collecting(silent=True) as collector:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        async with open_site(emulator_hosts, tmp_path, environment=environment) as site:
            await played(site)
        assert collector.requests
        assert not collector.spans
    warned = [e for e in logged(tmp_path) if e["message"] == "telemetry not exported"]
    assert warned
    assert {e["severity"] for e in warned} == {"WARNING"}
