"""The demo against a scripted server on loopback: what it submits, what it says, how it ends."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from functions.cli.exits import Misused
from infra.local.demo import EXAMPLES, demo, load_examples
from infra.local.demo_model import choose_model
from tests.unit.fake_api import (
    FakeApi,
    attempt_body,
    fake_api,
    job_body,
    missing_body,
    report_body,
    seat_body,
)

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))
MODELS = "GET /v1/models"


@dataclass(frozen=True, kw_only=True)
class Info:
    """A stack, as the demo sees it."""

    api: str
    api_key: str


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A scripted server, and no settings of the user's."""
    for name in ("EMPANEL_DEMO_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with fake_api() as fake:
        yield fake


def script_jobs(api: FakeApi, *, last: str = "succeeded", again_reused: bool = True) -> None:
    """All jobs succeed except the last, which ends as told; then one is asked again."""
    states = ["succeeded"] * (len(NAMES) - 1) + [last]
    for name, state in zip(NAMES, states, strict=True):
        api.answers("POST /v1/jobs", job_body("accepted", id=name), status=202)
        api.answers(f"GET /v1/jobs/{name}", job_body(state, id=name))
        report = report_body(complete=state == "succeeded", job_id=name)
        api.answers(f"GET /v1/jobs/{name}/report", report)
        api.answers(f"GET /v1/jobs/{name}/attempts", {"attempts": [attempt_body()]})
    attempts = [] if again_reused else [attempt_body()]
    again = job_body("succeeded", seat_body(reused=again_reused, attempts=0), id="again")
    api.answers("POST /v1/jobs", again, status=202)
    api.answers("GET /v1/jobs/again", again)
    api.answers("GET /v1/jobs/again/attempts", {"attempts": attempts})


def submissions(api: FakeApi) -> list[tuple[str, dict[str, Any]]]:
    """Idempotency key and body of each submission."""
    return [
        (seen.headers["idempotency-key"], json.loads(seen.body))
        for seen in api.seen
        if seen.method == "POST"
    ]


async def test_the_demo_ends_with_0_when_every_job_succeeded(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every example is submitted, shown and reported; the repeated question costs nothing."""
    script_jobs(api)
    assert await demo(Info(api=api.url, api_key="k")) == 0
    sent = submissions(api)
    assert [key for key, _ in sent] == [
        *(f"demo-{name}" for name in NAMES),
        f"demo-{NAMES[0]}-again",
    ]
    assert sent[0][1] == sent[-1][1]
    assert all(seen.headers["authorization"] == "Bearer k" for seen in api.seen)
    output = capsys.readouterr().out
    assert "2 of 2 scored" in output
    assert "cost unknown" in output
    assert "These scores mean nothing" in output
    assert "1 of 1 seats reused, 0 further requests" in output


async def test_the_demo_ends_with_1_when_a_job_failed(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """One failed job is enough; its report is shown with what is missing."""
    script_jobs(api, last="failed")
    assert await demo(Info(api=api.url, api_key="k")) == 1
    output = capsys.readouterr().out
    assert missing_body()["code"] in output
    assert f"{len(NAMES) - 1} of {len(NAMES)} jobs succeeded" in output


async def test_the_demo_ends_with_1_when_the_repetition_cost_a_request(api: FakeApi) -> None:
    """A repeated question that was asked for again is no success."""
    script_jobs(api, again_reused=False)
    assert await demo(Info(api=api.url, api_key="k")) == 1


async def test_the_demo_shows_a_refusal(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    """A refused submission ends the demo with the refusal's code and its text."""
    api.refuses("POST /v1/jobs", {"title": "Unauthorized"}, status=401)
    assert await demo(Info(api=api.url, api_key="wrong")) == 3
    assert "Refused (401): Unauthorized" in capsys.readouterr().err


async def test_the_demo_names_the_job_that_cannot_be_read(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trouble with one of several watched jobs ends the demo with its own code."""
    api.answers("POST /v1/jobs", job_body("accepted", id="lost"), status=202)
    assert await demo(Info(api=api.url, api_key="k")) == 3
    assert "/v1/jobs/lost" in capsys.readouterr().err


def test_every_example_asks_two_different_seats_of_the_demos_model() -> None:
    """The examples are complete bodies with a rubric, two seats and room for the answer."""
    examples = load_examples(EXAMPLES, "other")
    assert len(examples) >= 3
    for example in examples:
        body = json.loads(example.body)
        assert body["facts"]["name"]
        assert body["rubric"]["criteria"]
        assert body["rubric"]["scale"] == {"min": 0, "max": 100}
        assert [seat["model"] for seat in body["seats"]] == ["other", "other"]
        first, second = (seat["parameters"] for seat in body["seats"])
        assert first != second
        assert min(first["max_output_tokens"], second["max_output_tokens"]) >= 400


def test_every_example_names_its_source() -> None:
    """Each file of facts has a row with its source."""
    readme = (Path(EXAMPLES) / "README.md").read_text()
    assert all(f"| `{name}.json` |" in readme for name in NAMES)


async def test_without_settings_the_stacks_own_model_is_asked() -> None:
    """No user setting: the model the stack serves."""
    assert await choose_model({}) == "smollm2"


async def test_the_named_model_is_asked_whatever_is_listed(api: FakeApi) -> None:
    """EMPANEL_DEMO_MODEL wins, and no server is asked."""
    chosen = await choose_model({"EMPANEL_DEMO_MODEL": "m", "OPENAI_BASE_URL": f"{api.url}/v1"})
    assert chosen == "m"
    assert api.seen == []


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [(["only"], "only"), (["a", "smollm2", "b"], "smollm2"), ([], "smollm2"), (["a", "a"], "a")],
)
async def test_the_users_server_decides(api: FakeApi, listed: list[str], chosen: str) -> None:
    """The server's only model is taken, and smollm2 wherever it is listed."""
    api.answers(MODELS, {"object": "list", "data": [{"id": name} for name in listed]})
    environ = {"OPENAI_BASE_URL": f"{api.url}/v1/", "OPENAI_API_KEY": "sk"}
    assert await choose_model(environ) == chosen
    assert api.seen[0].headers["authorization"] == "Bearer sk"


async def test_several_models_are_not_guessed_from(api: FakeApi) -> None:
    """Several models: the user names one."""
    api.answers(MODELS, {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(Misused, match="EMPANEL_DEMO_MODEL"):
        await choose_model({"OPENAI_BASE_URL": f"{api.url}/v1"})


@pytest.mark.parametrize("body", [b"nonsense", b"{}", b'{"data": [{}]}'])
async def test_a_server_that_cannot_list_gets_the_default(api: FakeApi, body: bytes) -> None:
    """A listing that is missing or unreadable is no obstacle."""
    api.answers(MODELS, body)
    assert await choose_model({"OPENAI_BASE_URL": f"{api.url}/v1"}) == "smollm2"
    assert await choose_model({"OPENAI_BASE_URL": f"{api.url}/none"}) == "smollm2"
    assert await choose_model({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}) == "smollm2"
