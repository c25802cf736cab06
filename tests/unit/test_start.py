"""A function process with a mistake in its providers does not start: it says which, and ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.processes import child_environment

KEY = "sk-proj-Ab3dEf6hIj9lMn2p"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[providers.openai]\nschema_mode = "tool"', "schema_mode='tool': must be one of"),
        (f'[providers]\nopenai = "{KEY}"', "providers.openai=(hidden): must be a table"),
        (f'[providers.openai]\nheaders = "Bearer {KEY}"', "headers=(hidden): must be a table"),
        ("[providers.openai", "must name a readable TOML file"),
    ],
)
def test_a_mistake_in_the_providers_stops_the_start(tmp_path: Path, text: str, shown: str) -> None:
    """The process ends with 2 before it listens; name, value and rule are in its log, no key."""
    file = tmp_path / "providers.toml"
    file.write_text(text, encoding="utf-8")
    environment = child_environment() | {
        "FUNCTION_TARGET": "api",
        "GOOGLE_CLOUD_PROJECT": "p-1",
        "EMPANEL_BUCKET": "b",
        "EMPANEL_PROVIDERS": str(file),
        "OPENAI_API_KEY": KEY,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "functions.serving"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 2
    assert shown in said
    assert KEY not in said


def test_a_mistake_that_only_the_telemetry_sdk_knows_stops_the_start() -> None:
    """Found at the first request it would be found at every one: each would be answered 500."""
    environment = child_environment() | {
        "FUNCTION_TARGET": "api",
        "GOOGLE_CLOUD_PROJECT": "p-1",
        "EMPANEL_BUCKET": "b",
        "OPENAI_API_KEY": KEY,
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many",
    }
    ended = subprocess.run(
        [sys.executable, "-m", "functions.serving"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be a non-negative integer" in ended.stdout
