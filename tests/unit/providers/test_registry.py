"""Which providers a process has, from its environment and its TOML file."""

from pathlib import Path

import pytest

from functions.core.errors import ConfigurationError
from functions.providers.base import Endpoint, endpoint_digest
from functions.providers.registry import OPENAI_URL, load

KEY = "sk-test-ABCDEFGH12345678"


def toml(tmp_path: Path, text: str) -> dict[str, str]:
    """Return an environment that names a provider file with this text."""
    path = tmp_path / "providers.toml"
    path.write_text(text, encoding="utf-8")
    return {"EMPANEL_PROVIDERS": str(path)}


def endpoints(environ: dict[str, str]) -> dict[str, Endpoint]:
    """Return what each provider was configured to."""
    return {name: provider._endpoint for name, provider in load(environ).items()}


def test_nothing_set_is_no_provider() -> None:
    """Without a key OpenAI's own server is not offered."""
    assert load({}) == {}


def test_a_key_gives_openai() -> None:
    """OPENAI_API_KEY alone means the vendor's server; stray line ends do not count."""
    found = load({"OPENAI_API_KEY": KEY + "\n"}, concurrency=7)
    assert found["openai"].endpoint == endpoint_digest("chat", OPENAI_URL)
    assert found["openai"].concurrency == 7
    assert found["openai"]._endpoint.api_key == KEY


def test_another_base_url_needs_no_key() -> None:
    """A server of one's own may be asked without a key, and gets the key when there is one."""
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:8081/v1"}
    assert endpoints(environ)["openai"].api_key is None
    assert endpoints(environ | {"OPENAI_API_KEY": KEY})["openai"].api_key == KEY


def test_the_file_adds_and_changes_providers(tmp_path: Path) -> None:
    """Tables name further providers; one for `openai` changes its options."""
    environ = toml(
        tmp_path,
        """
        [providers.openai]
        token_field = "max_tokens"
        concurrency = 3
        [providers.local]
        base_url = "http://127.0.0.1:8082/v1"
        schema_mode = "json_object"
        integers = true
        max_string_characters = 400
        [providers.paid]
        base_url = "https://example.com/v1"
        key_variable = "PAID_KEY"
        auth_header = "api-key"
        """,
    )
    found = endpoints(environ | {"OPENAI_API_KEY": KEY, "PAID_KEY": "k-1"})
    assert found["openai"].base_url == OPENAI_URL
    assert (found["openai"].token_field, found["openai"].concurrency) == ("max_tokens", 3)
    assert (found["local"].api_key, found["local"].schema_mode) == (None, "json_object")
    assert (found["local"].integers, found["local"].max_string_characters) == (True, 400)
    assert (found["paid"].api_key, found["paid"].auth_header) == ("k-1", "api-key")


def test_a_named_key_that_is_not_set_leaves_the_provider_out(tmp_path: Path) -> None:
    """A provider whose key is missing is absent, not broken."""
    text = '[providers.paid]\nbase_url = "https://e.com/v1"\nkey_variable = "PAID_KEY"'
    assert load(toml(tmp_path, text)) == {}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[providers.p", "EMPANEL_PROVIDERS"),
        ("[other]", "only [providers.NAME]"),
        ("providers = 3", "must be tables"),
        ("providers.p = 3", "must be a table"),
        ('[providers."a b"]', "letters, digits"),
        ("[providers.p]", "base_url: required"),
        ('[providers.p]\nbase_url = "ftp://h"', "http or https"),
        ('[providers.p]\nbase_url = "https://h:99999/v1"', "http or https"),
        ('[providers.p]\nbase_url = "https://h/v1?key=1"', "without user, query"),
        ('[providers.p]\nbase_url = "https://h"\ncolour = "red"', "unknown; known are"),
        ('[providers.p]\nbase_url = "https://h"\ndialect = "gemini"', "one of chat"),
        ('[providers.p]\nbase_url = "https://h"\nschema_mode = "tool"', "json_object"),
        ('[providers.p]\nbase_url = "https://h"\nintegers = 1', "true or false"),
        ('[providers.p]\nbase_url = "https://h"\nconcurrency = 0', "from 1 to"),
        ('[providers.p]\nbase_url = "https://h"\nconcurrency = true', "from 1 to"),
        ('[providers.p]\nbase_url = "https://h"\nauth_header = "a: b"', "a name of letters"),
    ],
)
def test_a_bad_file_stops_the_start(tmp_path: Path, text: str, shown: str) -> None:
    """Every broken rule is told with its name and the rule."""
    with pytest.raises(ConfigurationError) as caught:
        load(toml(tmp_path, text))
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({"EMPANEL_PROVIDERS": "/nowhere/at/all.toml"}, "/nowhere/at/all.toml"),
        ({"OPENAI_BASE_URL": "api.openai.com"}, "OPENAI_BASE_URL='api.openai.com'"),
        ({"OPENAI_API_KEY": "sk-süß-1234567890"}, "OPENAI_API_KEY"),
        ({"OPENAI_BASE_URL": "https://me:hunter2@h/v1"}, "OPENAI_BASE_URL=(hidden)"),
    ],
)
def test_a_bad_variable_stops_the_start(environ: dict[str, str], shown: str) -> None:
    """A25: the variable is named, and no secret stands in the message."""
    with pytest.raises(ConfigurationError) as caught:
        load(environ)
    assert shown in str(caught.value)
    assert "1234567890" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
