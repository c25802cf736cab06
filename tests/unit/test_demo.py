"""The demo against a scripted server on loopback: what it submits, what it says, how it ends."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from functions.cli.exits import Misused
from functions.providers.presets import provider_variables
from infra.local.demo import EXAMPLES, demo, load_examples
from infra.local.demo_model import LOCAL, DemoTarget, choose_target
from tests.unit.fake_api import (
    FakeApi,
    attempt_body,
    fake_api,
    job_body,
    missing_body,
    report_body,
    seat_body,
)
from tests.unit.test_cli_books import WINDOW, audit_body, pass_body

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.json"))
MODELS = "GET /v1/models"


@dataclass(frozen=True, kw_only=True)
class Info:
    """A stack, as the demo sees it."""

    api: str
    api_key: str
    functions: Mapping[str, str]
    push_token: str = "token"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A scripted server, and no settings of the user's."""
    for name in ("EMPANEL_DEMO_MODEL", *provider_variables()):
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
    script_audit(api)


def info_of(api: FakeApi, key: str = "k") -> Info:
    """The scripted server as a stack, its `reconcile` beside its API."""
    return Info(api=api.url, api_key=key, functions={"reconcile": api.url})


def script_audit(api: FakeApi, **changes: Any) -> None:
    """One window, audited."""
    api.answers("POST /", pass_body())
    summary = {"window": WINDOW, "population": 3, "complete": True, "sealed": False, "counts": {}}
    api.answers("GET /v1/audits", {"audits": [summary]})
    api.answers(f"GET /v1/audits/{WINDOW}", audit_body(**changes))


def submissions(api: FakeApi) -> list[tuple[str, dict[str, Any]]]:
    """Idempotency key and body of each submission."""
    return [
        (seen.headers["idempotency-key"], json.loads(seen.body))
        for seen in api.seen
        if (seen.method, seen.path) == ("POST", "/v1/jobs")
    ]


async def test_the_demo_ends_with_0_when_every_job_succeeded(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every example is submitted, shown and reported; the repeated question costs nothing."""
    script_jobs(api)
    assert await demo(info_of(api, "k")) == 0
    sent = submissions(api)
    assert [key for key, _ in sent] == [
        *(f"demo-{name}" for name in NAMES),
        f"demo-{NAMES[0]}-again",
    ]
    assert sent[0][1] == sent[-1][1]
    keys = {seen.headers["authorization"] for seen in api.seen if seen.path != "/"}
    assert keys == {"Bearer k"}
    output = capsys.readouterr().out
    assert "2 of 2 scored" in output
    assert "cost unknown" in output
    assert "These scores mean nothing" in output
    assert "1 of 1 seats reused, 0 further requests" in output
    assert "Every accepted run is accounted for." in output


async def test_the_demo_ends_with_1_when_a_job_failed(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """One failed job is enough; its report is shown with what is missing."""
    script_jobs(api, last="failed")
    assert await demo(info_of(api, "k")) == 1
    output = capsys.readouterr().out
    assert missing_body()["code"] in output
    assert f"{len(NAMES) - 1} of {len(NAMES)} jobs succeeded" in output


async def test_the_demo_ends_with_1_when_the_repetition_cost_a_request(api: FakeApi) -> None:
    """A repeated question that was asked for again is no success."""
    script_jobs(api, again_reused=False)
    assert await demo(info_of(api, "k")) == 1


async def test_the_demo_ends_with_1_when_the_audit_finds_a_gap(
    api: FakeApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is not accounted for is shown, whatever the jobs themselves say."""
    monkeypatch.setattr("infra.local.demo.AUDITS", 1)
    script_jobs(api)
    api.script[f"GET /v1/audits/{WINDOW}"].clear()
    api.answers(f"GET /v1/audits/{WINDOW}", audit_body(missing_terminal=["job_lost"]))
    assert await demo(info_of(api)) == 1
    assert "job_lost" in capsys.readouterr().out


async def test_the_demo_shows_a_refusal(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    """A refused submission ends the demo with the refusal's code and its text."""
    api.refuses("POST /v1/jobs", {"title": "Unauthorized"}, status=401)
    assert await demo(info_of(api, "wrong")) == 3
    assert "Refused (401): Unauthorized" in capsys.readouterr().err


async def test_the_demo_names_the_job_that_cannot_be_read(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trouble with one of several watched jobs ends the demo with its own code."""
    api.answers("POST /v1/jobs", job_body("accepted", id="lost"), status=202)
    assert await demo(info_of(api, "k")) == 3
    assert "/v1/jobs/lost" in capsys.readouterr().err


def test_every_example_asks_two_different_seats_of_the_demos_model() -> None:
    """The examples are complete bodies with a rubric, two seats and room for the answer."""
    examples = load_examples(EXAMPLES, DemoTarget(provider="mine", model="other"))
    assert len(examples) >= 3
    for example in examples:
        body = json.loads(example.body)
        assert body["facts"]["name"]
        assert body["rubric"]["criteria"]
        assert body["rubric"]["scale"] == {"min": 0, "max": 100}
        asked = [(seat["provider"], seat["model"]) for seat in body["seats"]]
        assert asked == [("mine", "other")] * 2
        first, second = (seat["parameters"] for seat in body["seats"])
        assert first != second
        assert min(first["max_output_tokens"], second["max_output_tokens"]) >= 400


def test_every_example_names_its_source() -> None:
    """Each file of facts has a row with its source."""
    readme = (Path(EXAMPLES) / "README.md").read_text()
    assert all(f"| `{name}.json` |" in readme for name in NAMES)


def test_a_hosted_model_gets_no_parameters() -> None:
    """New models refuse a temperature; the seats are still two different questions."""
    target = DemoTarget(provider="anthropic", model="claude-x", hosted=True)
    for example in load_examples(EXAMPLES, target):
        seats = json.loads(example.body)["seats"]
        assert [seat["parameters"] for seat in seats] == [{}, {}]
        assert [seat["sample"] for seat in seats] == [0, 1]


async def test_without_settings_the_stacks_own_model_is_asked() -> None:
    """No user setting: the model the stack serves."""
    assert await choose_target({}) == LOCAL
    assert DemoTarget(provider="openai", model="smollm2") == LOCAL


async def test_the_named_model_is_asked_whatever_is_listed(api: FakeApi) -> None:
    """EMPANEL_DEMO_MODEL wins, and no server is asked."""
    named = {"EMPANEL_DEMO_MODEL": "m"}
    chosen = await choose_target({**named, "OPENAI_BASE_URL": f"{api.url}/v1"})
    assert chosen == DemoTarget(provider="openai", model="m")
    assert await choose_target(named) == chosen
    assert api.seen == []


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [(["only"], "only"), (["a", "smollm2", "b"], "smollm2"), ([], "smollm2"), (["a", "a"], "a")],
)
async def test_the_users_server_decides(api: FakeApi, listed: list[str], chosen: str) -> None:
    """The server's only model is taken, and smollm2 wherever it is listed."""
    api.answers(MODELS, {"object": "list", "data": [{"id": name} for name in listed]})
    environ = {"OPENAI_BASE_URL": f"{api.url}/v1/", "OPENAI_API_KEY": "sk"}
    assert await choose_target(environ) == DemoTarget(provider="openai", model=chosen)
    assert api.seen[0].headers["authorization"] == "Bearer sk"


async def test_several_models_are_not_guessed_from(api: FakeApi) -> None:
    """Several models: the user names one."""
    api.answers(MODELS, {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(Misused, match=r"serves 2 models \(a, b\).*EMPANEL_DEMO_MODEL"):
        await choose_target({"OPENAI_BASE_URL": f"{api.url}/v1"})


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b'{"data": 3}'])
async def test_a_server_that_cannot_list_gets_the_default(api: FakeApi, body: bytes) -> None:
    """A listing that is missing or unreadable is no obstacle."""
    api.answers(MODELS, body)
    for address in (f"{api.url}/v1", f"{api.url}/none", "http://127.0.0.1:1/v1"):
        assert await choose_target({"OPENAI_BASE_URL": address}) == LOCAL


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (["claude-opus-9", "claude-haiku-5-5", "claude-haiku-6"], "claude-haiku-5-5"),
        (["gpt-4", "claude-haiku-4-5-20251001", "claude-haiku-6-1"], "claude-haiku-6-1"),
        (["gpt-4", "claude-3-opus-20240229", "claude-3-5-sonnet"], "claude-3-5-sonnet"),
        (["stand-in"], "stand-in"),
        ([], "claude-haiku-5-5"),
    ],
)
async def test_anthropic_alone_is_asked(api: FakeApi, listed: list[str], chosen: str) -> None:
    """With only Anthropic's variables the panel goes there, to the newest of its small models."""
    api.answers(MODELS, {"data": [{"type": "model", "id": name} for name in listed]})
    environ = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk"}
    target = DemoTarget(provider="anthropic", model=chosen, hosted=True)
    assert await choose_target(environ) == target
    assert api.seen[0].headers["x-api-key"] == "sk"
    assert api.seen[0].headers["anthropic-version"]


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (["gemini-2.5-pro", "gemini-9.1-flash", "gemini-10.0-flash"], "gemini-10.0-flash"),
        (["gemini-3.8-flash", "gemini-9.1-flash"], "gemini-3.8-flash"),
        ([], "gemini-3.8-flash"),
    ],
)
async def test_gemini_alone_is_asked(api: FakeApi, listed: list[str], chosen: str) -> None:
    """With only Gemini's variables the panel goes there; Google lists resources, not IDs."""
    api.answers("GET /v1beta/models", {"models": [{"name": f"models/{name}"} for name in listed]})
    environ = {"GOOGLE_GEMINI_BASE_URL": api.url, "GEMINI_API_KEY": "k"}
    target = DemoTarget(provider="gemini", model=chosen, hosted=True)
    assert await choose_target(environ) == target
    assert api.seen[0].headers["x-goog-api-key"] == "k"


async def test_models_of_nobody_known_are_not_guessed_from(api: FakeApi) -> None:
    """A server in a vendor's place that lists only strange names: the user names one."""
    api.answers(MODELS, {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(Misused, match="EMPANEL_DEMO_MODEL"):
        await choose_target({"ANTHROPIC_BASE_URL": api.url})


async def test_a_table_of_the_users_is_asked(api: FakeApi, tmp_path: Path) -> None:
    """The first provider of the user's file is asked when no vendor's variables are set."""
    file = tmp_path / "providers.toml"
    file.write_text(f'[providers.mine]\nbase_url = "{api.url}/v1"')
    environ = {"EMPANEL_PROVIDERS": str(file)}
    api.answers(MODELS, {"data": [{"id": "only"}]})
    assert await choose_target(environ) == DemoTarget(provider="mine", model="only")
    file.write_text(f'[providers.mine]\nbase_url = "{api.url}/none"')
    with pytest.raises(Misused, match="does not list its models"):
        await choose_target(environ)


async def test_a_provider_without_its_key_is_told(tmp_path: Path) -> None:
    """Settings that make no provider complete end the demo with a sentence."""
    with pytest.raises(Misused, match="has its key"):
        await choose_target({"ANTHROPIC_BASE_URL": "https://api.anthropic.com"})
    with pytest.raises(Misused, match="OPENAI_BASE_URL"):
        await choose_target({"OPENAI_BASE_URL": "nonsense"})
