"""Hostile requests to every route that writes: refused as the table says, and nothing is written.

What is compared at the end is the whole ledger, document by document, and every object's name.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio

from infra.local.emulators import EmulatorHosts
from tests.e2e.oddities import COSTLY_SCHEMAS, ON_THE_LIMIT, RAW, SUBMIT, Raw, request, sent
from tests.e2e.oddities import JSON as JSON_TYPE
from tests.e2e.site import SETTINGS, Json, Site, dumped, open_site, panel
from tests.e2e.test_books import audited, lose_object
from tests.e2e.waiting import until
from tests.stub import Rule, ScriptedResponse

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPERATOR, SUBMITTER, FOREIGN, WRONG, NOBODY = "", "ek_submitter", "ek_foreign", "ek_wrong", None
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
PATIENT_SECONDS = 1800
QUIET_SECONDS = 2 * float(SETTINGS["EMPANEL_REPAIR_SECONDS"]) + 1
# Moved by repair as time goes by, whatever is asked.
MOVING = {"check_at", "check_seconds", "next_at"}


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """A request, whose key it carries, and the status it must get."""

    method: str
    path: str
    status: int
    content: bytes | None = None
    key: str | None = OPERATOR
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)


JOB, DECISION = "/v1/jobs/{ended}", "/v1/decisions/{decision}/actions"
INCIDENT, NOTIFICATION = "/v1/incidents/{incident}/resolve", "/v1/notifications/{notification}"
BATCH = "/v1/jobs:batch"
UNKNOWN_JOB = "/v1/jobs/job_" + "a" * 32
HOLDER, NOTE = dumped({"holder": "me"}), dumped({"note": "looked at"})
BODIES = {
    "no body": (b"", 400),
    "prose": (b"yes please", 400),
    "cut": (b'{"holder": "me"', 400),
    "a duplicate key": (b'{"holder": "me", "holder": "me", "note": "a", "note": "a"}', 400),
    "NaN": (b'{"holder": NaN, "note": NaN}', 400),
    "a lone surrogate": (b'{"holder": "\\ud800", "note": "\\ud800"}', 400),
    "too deep": (b'{"holder": ' + b"[" * 100 + b"]" * 100 + b"}", 400),
    "an array": (b"[]", 422),
    "null": (b"null", 422),
    "an empty object": (b"{}", 422),
    "another type": (b'{"holder": 1, "note": 1}', 422),
    "a null field": (b'{"holder": null, "note": null}', 422),
    "an empty text": (b'{"holder": "", "note": ""}', 422),
    "a long text": (dumped({"holder": "h" * 1001, "note": "n" * 1001}), 422),
    "an unknown field": (b'{"holder": "me", "note": "a", "force": true}', 422),
    "over 1 MiB": (b'{"holder": "' + b"h" * 1024 * 1024 + b'"}', 413),
}


def _on_every_route() -> dict[str, Hostile]:
    """Whose request it is, and which resource: the same for every route that writes."""
    routes = {
        "submit": ("POST", "/v1/jobs", dumped(panel("hostile"))),
        "batch": ("POST", BATCH, dumped(panel("hostile"))),
        "estimate": ("POST", "/v1/estimate", dumped(panel("hostile"))),
        "cancel": ("POST", f"{JOB}/cancel", None),
        "replay": ("POST", f"{JOB}/replay", None),
        "purge": ("DELETE", JOB, None),
        "action": ("PUT", f"{DECISION}/publish", HOLDER),
        "resolve": ("POST", INCIDENT, NOTE),
        "redeliver": ("POST", f"{NOTIFICATION}/redeliver", None),
        "watch": ("GET", f"{JOB}/events", None),
    }
    table = {}
    for name, (method, path, content) in routes.items():
        for who, key in (("nobody", NOBODY), ("a wrong key", WRONG)):
            table[f"{name}: {who}"] = Hostile(
                method=method, path=path, status=401, content=content, key=key
            )
        table[f"{name}: an unknown query"] = Hostile(
            method=method, path=f"{path}?force=1", status=400, content=content
        )
        if name not in ("submit", "batch", "estimate"):
            table[f"{name}: another tenant"] = Hostile(
                method=method, path=path, status=404, content=content, key=FOREIGN
            )
    for name in ("purge", "resolve", "redeliver"):
        method, path, content = routes[name]
        table[f"{name}: a submitter"] = Hostile(
            method=method, path=path, status=403, content=content, key=SUBMITTER
        )
    return table


def _bodies() -> dict[str, Hostile]:
    table = {}
    for what, (content, status) in BODIES.items():
        for name, method, path in (
            ("action", "PUT", f"{DECISION}/publish"),
            ("resolve", "POST", INCIDENT),
            ("submit", "POST", "/v1/jobs"),
            ("estimate", "POST", "/v1/estimate"),
        ):
            table[f"{name}: {what}"] = Hostile(
                method=method, path=path, status=status, content=content
            )
    return table


def _types() -> dict[str, Hostile]:
    table = {}
    for name, method, path, content in (
        ("action", "PUT", f"{DECISION}/publish", HOLDER),
        ("resolve", "POST", INCIDENT, NOTE),
        ("estimate", "POST", "/v1/estimate", dumped(panel("hostile"))),
    ):
        for what, headers in (
            ("text", {"Content-Type": "text/plain"}),
            ("gzip", {**JSON, "Content-Encoding": "gzip"}),
            ("latin-1", {"Content-Type": "application/json; charset=latin-1"}),
        ):
            table[f"{name}: {what}"] = Hostile(
                method=method, path=path, status=415, content=content, headers=headers
            )
    return table


def _beyond_limits() -> dict[str, Hostile]:
    beyond = {f"one over: {name}": over for name, (_, over) in ON_THE_LIMIT.items()}
    beyond |= {f"a schema: {name}": changes for name, changes in COSTLY_SCHEMAS.items()}
    return {
        f"{route}: {what}": Hostile(
            method="POST", path=path, status=422, content=dumped(panel("hostile") | changes)
        )
        for what, changes in beyond.items()
        for route, path in (("submit", "/v1/jobs"), ("estimate", "/v1/estimate"))
    }


def _batches() -> dict[str, Hostile]:
    """What is wrong with a batch as a whole; lines are refused one by one."""
    line = dumped(panel("hostile")) + b"\n"
    bad: dict[str, tuple[int, bytes, Mapping[str, str]]] = {
        "no body": (400, b"", NDJSON),
        "blank lines only": (400, b"\r\n \r\n", NDJSON),
        "a key for all": (400, line, {**NDJSON, "Idempotency-Key": "k"}),
        "over 1 MiB": (413, line + b" " * 1024 * 1024, NDJSON),
        "1,001 lines": (422, b"{}\n" * 1001, NDJSON),
        "a million blank lines": (422, b"\n" * 1_000_000 + line, NDJSON),
        "JSON": (415, line, JSON),
        "gzip": (415, line, {**NDJSON, "Content-Encoding": "gzip"}),
        "latin-1": (415, line, {"Content-Type": "application/x-ndjson; charset=latin-1"}),
    }
    table = {
        f"batch: {what}": Hostile(
            method="POST", path=BATCH, status=status, content=content, headers=headers
        )
        for what, (status, content, headers) in bad.items()
    }
    table["batch: by GET"] = Hostile(method="GET", path=BATCH, status=405)
    table["batch: a path below"] = Hostile(method="POST", path=f"{BATCH}/x", status=404)
    return table


TABLE: dict[str, Hostile] = {
    **_on_every_route(),
    **_bodies(),
    **_types(),
    **_batches(),
    **_beyond_limits(),
    "watch: an unknown job": Hostile(method="GET", path=f"{UNKNOWN_JOB}/events", status=404),
    "watch: a name that is none": Hostile(method="GET", path="/v1/jobs/a.b/events", status=404),
    "watch: another method": Hostile(method="POST", path=f"{JOB}/events", status=405),
    "replay: an open job": Hostile(method="POST", path="/v1/jobs/{open}/replay", status=409),
    "replay: all succeeded": Hostile(method="POST", path=f"{JOB}/replay", status=409),
    "replay: unknown": Hostile(method="POST", path=f"{UNKNOWN_JOB}/replay", status=404),
    "replay: reserved": Hostile(method="POST", path="/v1/jobs/__x__/replay", status=404),
    "purge: an open job": Hostile(method="DELETE", path="/v1/jobs/{open}", status=409),
    "purge: unknown": Hostile(method="DELETE", path=UNKNOWN_JOB, status=404),
    "purge: a path": Hostile(method="DELETE", path="/v1/jobs/a%2Fb", status=404),
    "cancel: unknown": Hostile(method="POST", path=f"{UNKNOWN_JOB}/cancel", status=404),
    "cancel: by GET": Hostile(method="GET", path=f"{JOB}/cancel", status=405),
    "purge: by PUT": Hostile(method="PUT", path=JOB, status=405),
    "action: by POST": Hostile(method="POST", path=f"{DECISION}/publish", status=405),
    "action: unknown": Hostile(
        method="PUT", path=f"/v1/decisions/dec_{'a' * 32}/actions/publish", status=404
    ),
    "action: reserved": Hostile(
        method="PUT", path="/v1/decisions/__x__/actions/publish", status=404, content=HOLDER
    ),
    "action: dots": Hostile(method="PUT", path=f"{DECISION}/..%2e", status=400, content=HOLDER),
    "action: a path": Hostile(method="PUT", path=f"{DECISION}/a%2Fb", status=404, content=HOLDER),
    "action: long": Hostile(
        method="PUT", path=f"{DECISION}/{'a' * 129}", status=400, content=HOLDER
    ),
    "action: lines": Hostile(
        method="PUT",
        path=f"{DECISION}/publish",
        status=422,
        content=dumped({"holder": "me\nyou"}),
    ),
    "resolve: unknown": Hostile(
        method="POST", path="/v1/incidents/inc_0/resolve", status=404, content=NOTE
    ),
    "resolve: blanks": Hostile(
        method="POST", path=INCIDENT, status=422, content=dumped({"note": "   "})
    ),
    "redeliver: unknown": Hostile(
        method="POST", path=f"/v1/notifications/dec_{'a' * 32}.1/redeliver", status=404
    ),
    "redeliver: no run": Hostile(
        method="POST", path="/v1/notifications/{decision}/redeliver", status=404
    ),
    "redeliver: another run": Hostile(
        method="POST", path="/v1/notifications/{decision}.2/redeliver", status=404
    ),
    "redeliver: a long run": Hostile(
        method="POST", path="/v1/notifications/{decision}.0000000001/redeliver", status=404
    ),
    "submit: a long key": Hostile(
        method="POST",
        path="/v1/jobs",
        status=400,
        content=dumped(panel("hostile")),
        headers={**JSON, "Idempotency-Key": "k" * 256},
    ),
    "estimate: no seats": Hostile(
        method="POST", path="/v1/estimate", status=422, content=dumped(panel("hostile", seats=[]))
    ),
    "estimate: a metadata webhook": Hostile(
        method="POST",
        path="/v1/estimate",
        status=422,
        content=dumped(panel("hostile", notify={"url": "https://169.254.169.254/"})),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    emulator_hosts: EmulatorHosts, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with open_site(emulator_hosts, tmp_path_factory.mktemp("bad-actions")) as running:
        own = await running.ledger.get(
            f"api_keys/{hashlib.sha256(running.stack.info.api_key.encode()).hexdigest()}"
        )
        for key, tenant, role in (
            (SUBMITTER, own.data["tenant"], "submitter"),
            (FOREIGN, "foreign", "operator"),
        ):
            name = hashlib.sha256(key.encode()).hexdigest()
            texts = {"tenant": tenant, "role": role, "name": key}
            await running.ledger.create("api_keys", name, texts)
            assert (await running.call("GET", "/v1/jobs", api_key=key)).status_code == 200
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def names(site: Site) -> Mapping[str, str]:
    """What the paths name: a job that succeeded, one that waits for hours, an open incident."""
    wait = ScriptedResponse(status=429, headers={"retry-after": str(PATIENT_SECONDS)})
    await site.stub.script(Rule(label="patient", always=wait))
    patient = panel("patient", "slow", policy={"deadline_seconds": 4 * PATIENT_SECONDS})
    waiting = await site.accepted(patient)
    shown = await until(
        lambda: site.call("GET", f"/v1/jobs/{waiting}"),
        lambda seen: seen.json()["seats"][0]["state"] == "waiting",
        what="the seat waits",
    )
    assert int(shown.headers["retry-after"]) > 60  # the provider's hint, re-emitted
    [job] = await site.ended(await site.accepted(panel("ended", "a")))
    [lost] = await site.ended(await site.accepted(panel("lost", "a")))
    await lose_object(site, lost["seats"][0]["output"]["uri"])
    await audited(site)
    [incident] = (await site.read("/v1/incidents?status=open"))["incidents"]
    return {
        "open": waiting,
        "ended": job["id"],
        "decision": job["decision_id"],
        "incident": incident["id"],
        "notification": f"{job['decision_id']}.1",
    }


async def everything(site: Site) -> Json:
    """Every document as it is, but for what time moves; the names of all objects."""
    found = await site.ledger.everything()
    documents = {
        document.path: {k: v for k, v in document.data.items() if k not in MOVING}
        for document in found
    }
    return {"documents": documents, "objects": sorted(await site.bucket.names())}


async def settled(site: Site) -> Json:
    """What is stored once nothing has changed for longer than repair's period."""
    loop = asyncio.get_running_loop()
    seen, since = await everything(site), loop.time()

    async def look() -> float:
        nonlocal seen, since
        now = await everything(site)
        if changes(seen, now):
            seen, since = now, loop.time()
        return loop.time() - since

    await until(look, lambda quiet: quiet > QUIET_SECONDS, what="nothing is written any more")
    return seen


def changes(before: Json, after: Json) -> dict[str, Any]:
    """The fields that differ, by the path of their document, and the objects if they do."""
    old, new = before["documents"], after["documents"]
    found: dict[str, Any] = {}
    for path in sorted(old.keys() | new.keys()):
        fields = old.get(path, {}), new.get(path, {})
        names = fields[0].keys() | fields[1].keys()
        differ = {n for n in names if fields[0].get(n) != fields[1].get(n)}
        if differ:
            found[path] = {name: [some.get(name) for some in fields] for name in differ}
    if before["objects"] != after["objects"]:
        found["objects"] = [before["objects"], after["objects"]]
    return found


async def _sent(site: Site, hostile: Hostile, names: Mapping[str, str]) -> httpx.Response:
    path = hostile.path.format(**names)
    if hostile.key is None:
        url = f"{site.stack.info.api}{path}"
        return await site.client.request(
            hostile.method, url, content=hostile.content, headers=dict(hostile.headers)
        )
    return await site.call(
        hostile.method,
        path,
        api_key=hostile.key or None,
        content=hostile.content,
        headers=dict(hostile.headers),
    )


async def _assert_lines_refused(site: Site) -> None:
    """Send the bad bodies as the lines of one batch; each gets its status."""
    bad = {what: found for what, found in BODIES.items() if found[1] != 413}
    content = b"\n".join(line for line, _ in bad.values())
    answer = await site.call("POST", BATCH, content=content, headers=NDJSON)
    found = [json.loads(line)["status"] for line in answer.content.splitlines()]
    assert dict(zip(bad, found, strict=True)) == {what: status for what, (_, status) in bad.items()}


async def test_hostile_requests_are_refused_and_write_nothing(
    site: Site, names: Mapping[str, str]
) -> None:
    """Each gets its status as a problem; afterwards the ledger and the bucket are as before."""
    assert len(TABLE) >= 60
    before = await settled(site)
    asked = await site.requests("")
    answers = await asyncio.gather(*(_sent(site, hostile, names) for hostile in TABLE.values()))
    wrong = {
        what: (hostile.status, answer.status_code, answer.text[:300])
        for (what, hostile), answer in zip(TABLE.items(), answers, strict=True)
        if answer.status_code != hostile.status
        or answer.headers["content-type"] != "application/problem+json"
    }
    assert not wrong, json.dumps(wrong, indent=1)
    await _assert_lines_refused(site)
    assert changes(before, await settled(site)) == {}
    assert await site.requests("") == asked


async def test_odd_bytes_are_refused_and_write_nothing(
    site: Site, names: Mapping[str, str]
) -> None:
    """Headers, framing, paths and queries that no client library would send."""
    before = await settled(site)
    got = {what: await sent(site, raw, names) for what, raw in RAW.items()}
    wrong = {
        what: (RAW[what].statuses, status)
        for what, status in got.items()
        if not (status in RAW[what].statuses or (status is None and RAW[what].may_close))
    }
    assert not wrong, json.dumps(wrong, indent=1)
    assert changes(before, await settled(site)) == {}


async def test_the_same_bytes_without_the_oddity_are_taken(
    site: Site, names: Mapping[str, str]
) -> None:
    """The odd requests are refused for what is odd in them: this one is a submission."""
    plain = request(SUBMIT, JSON_TYPE, body=dumped(panel("plain bytes")))
    assert await sent(site, Raw(content=plain, statuses=(202,)), names) == 202
    listed = request(b"GET /v1/jobs?limit=1 HTTP/1.1")
    assert await sent(site, Raw(content=listed, statuses=(200,)), names) == 200


@pytest.mark.parametrize("part", ON_THE_LIMIT)
async def test_what_lies_on_a_limit_is_taken(site: Site, part: str) -> None:
    """The limits are those that the table is one beyond."""
    body = panel("on the limit") | ON_THE_LIMIT[part][0]
    answer = await site.call("POST", "/v1/estimate", json=body)
    assert answer.status_code == httpx.codes.OK, answer.text


async def test_a_good_request_is_seen_by_the_comparison(
    site: Site, names: Mapping[str, str]
) -> None:
    """The same look does see what a request that is not refused writes, on each such route."""
    for method, path, content, written in (
        ("PUT", f"{DECISION}/publish", HOLDER, "decisions/{decision}/actions/publish"),
        ("POST", INCIDENT, NOTE, "incidents/{incident}"),
        ("POST", f"{NOTIFICATION}/redeliver", None, "notifications/{notification}"),
        ("POST", "/v1/jobs", dumped(panel("fine", "a")), "jobs/"),
        ("POST", BATCH, dumped(panel("fine in a batch", "a")), "jobs/"),
        ("POST", "/v1/jobs/{open}/cancel", None, "stops/{open}.1"),
        ("DELETE", JOB, None, "jobs/{ended}"),
    ):
        before = await everything(site)
        headers = NDJSON if path == BATCH else JSON
        good = Hostile(method=method, path=path, status=200, content=content, headers=headers)
        answer = await _sent(site, good, names)
        assert answer.is_success, answer.text
        seen = changes(before, await everything(site))
        assert [path for path in seen if path.startswith(written.format(**names))], seen


async def test_an_estimate_stores_nothing(site: Site) -> None:
    """Asked for with a key and a body that are fine, it leaves everything as it was."""
    before = await settled(site)
    answer = await site.call("POST", "/v1/estimate", json=panel("estimated", "a"))
    assert answer.status_code == httpx.codes.OK
    assert changes(before, await settled(site)) == {}
