"""Which providers a process has, from its environment and its TOML file."""

from pathlib import Path
from typing import Any

import pytest

from functions.core.errors import ConfigurationError
from functions.providers.base import Endpoint, Prices, endpoint_digest
from functions.providers.presets import PRESETS
from functions.providers.registry import DIALECTS, endpoints, load

KEY = "sk-test-ABCDEFGH12345678"
OPENAI_URL = "https://api.openai.com/v1"
VENDORS = {
    "mistral": "MISTRAL_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "xai": "XAI_API_KEY",
    "groq": "GROQ_API_KEY",
    "together": "TOGETHER_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}


def toml(tmp_path: Path, text: str) -> dict[str, str]:
    """Return an environment that names a provider file with this text."""
    path = tmp_path / "providers.toml"
    path.write_text(text, encoding="utf-8")
    return {"EMPANEL_PROVIDERS": str(path)}


def table(tmp_path: Path, text: str, **environ: str) -> Endpoint:
    """Return the endpoint of the table `p` with these lines."""
    return endpoints({**toml(tmp_path, f"[providers.p]\n{text}"), **environ})["p"]


def test_nothing_set_is_no_provider() -> None:
    """Without a key no vendor's own server is offered."""
    assert load({}) == {}


def test_a_key_gives_openai_in_both_dialects() -> None:
    """OPENAI_API_KEY alone means the vendor's server; stray line ends do not count."""
    found = load({"OPENAI_API_KEY": KEY + "\n"}, concurrency=7)
    assert found.keys() == {"openai", "openai-responses"}
    assert found["openai"].endpoint == endpoint_digest("chat", OPENAI_URL)
    assert found["openai-responses"].endpoint == endpoint_digest("responses", OPENAI_URL)
    assert {provider.concurrency for provider in found.values()} == {7}
    assert {e.api_key for e in endpoints({"OPENAI_API_KEY": KEY}).values()} == {KEY}


@pytest.mark.parametrize(
    ("name", "key", "address", "own", "header"),
    [
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", OPENAI_URL, "Authorization"),
        ("openai-responses", "OPENAI_API_KEY", "OPENAI_BASE_URL", OPENAI_URL, "Authorization"),
        (
            "anthropic",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "https://api.anthropic.com",
            "x-api-key",
        ),
        (
            "gemini",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
            "https://generativelanguage.googleapis.com",
            "x-goog-api-key",
        ),
    ],
)
def test_the_vendors_own_variables(
    name: str, key: str, address: str, own: str, header: str
) -> None:
    """A key means the vendor's server; at another address a server may be asked without one."""
    assert name not in endpoints({address: own})
    vendor = endpoints({key: KEY})[name]
    assert (vendor.base_url, vendor.api_key, vendor.auth_header) == (own, KEY, header)
    elsewhere = endpoints({address: "http://127.0.0.1:8081/v1"})[name]
    assert (elsewhere.base_url, elsewhere.api_key) == ("http://127.0.0.1:8081/v1", None)
    both = endpoints({address: "http://127.0.0.1:8081/v1", key: KEY})[name]
    assert both.api_key == KEY


def test_vertex_needs_a_location() -> None:
    """GOOGLE_CLOUD_LOCATION offers Vertex AI in the process's own project, with Google's tokens."""
    environ = {"GOOGLE_CLOUD_PROJECT": "shop-1"}
    assert "vertex" not in endpoints(environ)
    found = endpoints(environ | {"GOOGLE_CLOUD_LOCATION": "europe-west4"})["vertex"]
    assert found.base_url.startswith("https://europe-west4-aiplatform.googleapis.com/v1/")
    assert "/projects/shop-1/locations/europe-west4/" in found.base_url
    assert (found.api_key, found.dialect) == (None, "vertex")
    assert found.credentials is not None


def test_a_vertex_table_has_its_own_project(tmp_path: Path) -> None:
    """Project, location, version and a server in Google's place, which may take a plain key."""
    text = """
        preset = "vertex"
        project = "other-2"
        location = "global"
        api_version = "v1beta1"
        base_url = "http://127.0.0.1:4000/google"
        key_variable = "PROXY_KEY"
    """
    environ = {"PROXY_KEY": KEY, "GOOGLE_CLOUD_PROJECT": "shop-1"}
    found = table(tmp_path, text, **environ)
    root = "http://127.0.0.1:4000/google/v1beta1/projects/other-2/locations/global/"
    assert found.base_url.startswith(root)
    assert (found.api_key, found.credentials) == (KEY, None)


@pytest.mark.parametrize(("name", "variable"), VENDORS.items())
def test_a_vendors_key_is_enough_for_its_preset(name: str, variable: str) -> None:
    """The vendor's usual key variable makes its preset available without any file."""
    found = endpoints({variable: KEY})
    assert found.keys() == {name}
    assert (found[name].api_key, found[name].dialect) == (KEY, "chat")
    assert found[name].base_url.startswith("https://")


@pytest.mark.parametrize("name", ["vllm", "ollama", "llamacpp", "litellm"])
def test_a_server_of_ones_own_is_there_when_a_table_names_it(tmp_path: Path, name: str) -> None:
    """It may be asked without a key, and gets the key when its variable is set."""
    variable = PRESETS[name].options["key_variable"]
    environ = toml(tmp_path, f"[providers.{name}]")
    assert name not in endpoints({variable: KEY})
    assert endpoints(environ)[name].api_key is None
    assert endpoints(environ | {variable: KEY})[name].api_key == KEY


def test_a_table_overrides_its_preset(tmp_path: Path) -> None:
    """Each option of a preset gives way to the table's; the other ones stay."""
    text = """
        [providers.eu]
        preset = "mistral"
        base_url = "https://api.eu.mistral.ai/v1"
        concurrency = 3
        [providers.mistral]
        token_field = "max_completion_tokens"
    """
    found = endpoints(toml(tmp_path, text) | {"MISTRAL_API_KEY": KEY})
    assert found["eu"].base_url == "https://api.eu.mistral.ai/v1"
    assert (found["eu"].concurrency, found["eu"].token_field) == (3, "max_tokens")
    assert found["eu"].parameter_names == {"seed": "random_seed"}
    assert found["mistral"].token_field == "max_completion_tokens"
    assert endpoints(toml(tmp_path, text)) == {}


def test_azure_sends_its_key_and_its_query_in_its_own_way(tmp_path: Path) -> None:
    """The key goes in `api-key`; a fixed query belongs to the endpoint's digest."""
    text = """
        preset = "azure"
        base_url = "https://r.openai.azure.com/openai/deployments/d"
        query = { api-version = "2026-10-01" }
    """
    found = table(tmp_path, text, AZURE_OPENAI_API_KEY=KEY)
    assert (found.auth_header, found.api_key) == ("api-key", KEY)
    assert found.query == {"api-version": "2026-10-01"}
    digests = {
        load({**toml(tmp_path, f"[providers.p]\n{changed}"), "AZURE_OPENAI_API_KEY": KEY})[
            "p"
        ].endpoint
        for changed in (text, text.replace("2026-10", "2026-11"))
    }
    assert len(digests) == 2


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
        idempotency_header = "Idempotency-Key"
        headers = { x-team = "panel" }
        parameter_names = { seed = "random_seed" }
        refused_parameters = ["top_p"]
        extra_body = { thinking = { type = "disabled" } }
        prices = { input = 2, output = 8.5, cached_input = 0 }
        """,
    )
    found = endpoints(environ | {"OPENAI_API_KEY": KEY, "PAID_KEY": "k-1"})
    assert found["openai"].base_url == OPENAI_URL
    assert (found["openai"].token_field, found["openai"].concurrency) == ("max_tokens", 3)
    assert (found["local"].api_key, found["local"].schema_mode) == (None, "json_object")
    assert (found["local"].integers, found["local"].max_string_characters) == (True, 400)
    assert found["paid"] == Endpoint(
        name="paid",
        base_url="https://example.com/v1",
        api_key="k-1",
        auth_header="api-key",
        idempotency_header="Idempotency-Key",
        headers={"x-team": "panel"},
        parameter_names={"seed": "random_seed"},
        refused_parameters=("top_p",),
        extra_body={"thinking": {"type": "disabled"}},
        prices=Prices(input=2.0, output=8.5, cached_input=0.0),
    )


def test_a_named_key_that_is_not_set_leaves_the_provider_out(tmp_path: Path) -> None:
    """A provider whose key is missing is absent, not broken."""
    text = '[providers.paid]\nbase_url = "https://e.com/v1"\nkey_variable = "PAID_KEY"'
    assert load(toml(tmp_path, text)) == {}


def test_the_same_server_under_two_names_is_one_endpoint(tmp_path: Path) -> None:
    """`openai` at a preset's address has the preset's digest: the question would be the same."""
    text = '[providers.groq]\n[providers.copy]\npreset = "groq"\nschema_mode = "prompt"'
    environ = {"OPENAI_BASE_URL": "https://API.groq.com:443/openai/v1/", "GROQ_API_KEY": KEY}
    found = load(toml(tmp_path, text) | environ)
    assert found["openai"].endpoint == found["groq"].endpoint == found["copy"].endpoint
    assert found["openai-responses"].endpoint != found["openai"].endpoint


def test_an_endpoint_without_additions_keeps_its_digest() -> None:
    """Query and extra body change the digest of the endpoints that have them, and no other."""
    own = endpoint_digest("chat", OPENAI_URL)
    assert own == "a544c65ff0840b2622440b382172d3e2966cb8fd5dcb761420ebe5875c226327"
    assert endpoint_digest("chat", OPENAI_URL, query={}, extra_body={}) == own
    assert endpoint_digest("chat", OPENAI_URL, extra_body={"a": 1}) != own
    assert endpoint_digest("chat", OPENAI_URL, query={"a": "1"}) != own


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_keeps_the_rules(tmp_path: Path, name: str) -> None:
    """A preset is data that a table could have said itself, in a dialect that exists."""
    options: dict[str, Any] = dict(PRESETS[name].options)
    assert options.get("dialect", "chat") in DIALECTS
    variable = options.get("key_variable", "UNUSED")
    text = f'[providers.p]\npreset = "{name}"\n'
    if name == "azure":
        text += 'base_url = "https://r.openai.azure.com/openai/v1"'
    environ = {variable: KEY, "GOOGLE_CLOUD_PROJECT": "p-1", "GOOGLE_CLOUD_LOCATION": "eu"}
    assert load(toml(tmp_path, text) | environ)["p"].name == "p"


URL = 'base_url = "https://h"\n'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[providers.p", "EMPANEL_PROVIDERS"),
        ("[other]", "only [providers.NAME]"),
        ("providers = 3", "must be tables"),
        ("providers.p = 3", "must be a table"),
        ('[providers."a b"]', "letters, digits"),
        ("[providers.p]", "base_url: required"),
        ('[providers.p]\npreset = "azure"', "base_url: required"),
        ('[providers.p]\npreset = "vertex"', "project: required, or GOOGLE_CLOUD_PROJECT"),
        ('[providers.p]\nbase_url = "ftp://h"', "http or https"),
        ('[providers.p]\nbase_url = "https://h:99999/v1"', "http or https"),
        ('[providers.p]\nbase_url = "https://h/v1?key=1"', "without user, query"),
    ],
)
def test_a_bad_file_stops_the_start(tmp_path: Path, text: str, shown: str) -> None:
    """Every broken rule of a file is told with its name and the rule."""
    with pytest.raises(ConfigurationError) as caught:
        load(toml(tmp_path, text))
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('colour = "red"', "colour: unknown; known are"),
        ('preset = "pony"', "preset='pony': must be one of openai, "),
        ('dialect = "telex"', "dialect='telex': must be one of chat, responses"),
        ('schema_mode = "tool"', "json_object"),
        ("integers = 1", "true or false"),
        ("concurrency = 0", "from 1 to"),
        ("concurrency = true", "from 1 to"),
        ('auth_header = "a: b"', "a name of letters"),
        ('idempotency_header = ""', "a name of letters"),
        ('headers = { Authorization = "x" }', "without those that a request has itself"),
        ('headers = { x-a = "1", X-A = "2" }', "a table of headers"),
        ('headers = { x-a = "ü", x-b = "secret" }', "headers=(x-a, x-b): must be"),
        ("headers = { x-a = 1 }", "printable"),
        ('query = "a=1"', "a table of query parameters"),
        ('parameter_names = { max_output_tokens = "n" }', "new names for reasoning_effort"),
        ('parameter_names = { seed = "x", top_p = "x" }', "all different"),
        ('refused_parameters = ["style"]', "a list of max_output_tokens"),
        ("extra_body = { stream = true }", "extra_body=(stream): must be"),
        ("extra_body = { at = 2026-11-29 }", "a table of JSON values"),
        ("extra_body = { n = nan }", "a table of JSON values"),
        ("prices = { input = 1 }", "USD per million tokens"),
        ("prices = { input = 1, output = -1 }", "USD per million tokens"),
        ("prices = { input = 1, output = inf }", "USD per million tokens"),
        ("prices = { input = 1, output = true }", "USD per million tokens"),
        ("prices = { input = 1, output = 1, lunch = 1 }", "USD per million tokens"),
        ('project = "p-1"', "project: only the dialect vertex has it, this provider's is chat"),
        ('dialect = "anthropic"\ntoken_field = "max"', "only the dialect chat has it"),
    ],
)
def test_a_bad_option_stops_the_start(tmp_path: Path, text: str, shown: str) -> None:
    """A25: option, value and rule are named."""
    with pytest.raises(ConfigurationError) as caught:
        table(tmp_path, URL + text)
    assert "providers.p." in str(caught.value)
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({"EMPANEL_PROVIDERS": "/nowhere/at/all.toml"}, "/nowhere/at/all.toml"),
        ({"OPENAI_BASE_URL": "api.openai.com"}, "OPENAI_BASE_URL='api.openai.com'"),
        ({"ANTHROPIC_BASE_URL": "anthropic"}, "ANTHROPIC_BASE_URL='anthropic'"),
        (
            {"GOOGLE_GEMINI_BASE_URL": "https://h/?a=1"},
            "GOOGLE_GEMINI_BASE_URL='https://h/?(hidden)'",
        ),
        ({"OPENAI_API_KEY": "sk-süß-1234567890"}, "OPENAI_API_KEY"),
        ({"MISTRAL_API_KEY": "mi 1234567890"}, "MISTRAL_API_KEY"),
        ({"OPENAI_BASE_URL": "https://me:hunter2@h/v1"}, "OPENAI_BASE_URL=(hidden)"),
        ({"GOOGLE_CLOUD_LOCATION": "eu"}, "GOOGLE_CLOUD_PROJECT"),
        ({"GOOGLE_CLOUD_LOCATION": "a/b", "GOOGLE_CLOUD_PROJECT": "p"}, "location='a/b'"),
    ],
)
def test_a_bad_variable_stops_the_start(environ: dict[str, str], shown: str) -> None:
    """A25: the variable is named, and no secret stands in the message."""
    with pytest.raises(ConfigurationError) as caught:
        load(environ)
    assert shown in str(caught.value)
    assert "1234567890" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


PASTED = "sk-proj-Ab3dEf6hIj9lMn2p"


@pytest.mark.parametrize(
    "text",
    [
        f'providers = "{PASTED}"',
        f'[providers]\nopenai = "{PASTED}"',
        f'[providers]\nopenai = ["{PASTED}"]',
        f'[providers.p]\napi_key = "{PASTED}"',
        f'[providers.p]\nkey_variable = "{PASTED}"',
        f'[providers.p]\nkey_variable = "{PASTED}/+="',
        f'[providers.p]\nauth_header = "Bearer {PASTED}"',
        f'[providers.p]\nidempotency_header = "x: {PASTED}"',
        f'[providers.p]\nheaders = "Bearer {PASTED}"',
        f'[providers.p]\nheaders = ["{PASTED}"]',
        f'[providers.p]\nheaders = {{ authorization = "Bearer {PASTED}" }}',
        f'[providers.p]\nheaders = {{ "Authorization: {PASTED}" = "x" }}',
        f'[providers.p]\nquery = {{ key = "{PASTED}\\n" }}',
        f'[providers.p]\nextra_body = {{ model = "m", api_key = "{PASTED}" }}',
        f'[providers.p]\nprices = {{ input = "{PASTED}", output = 1 }}',
        f'[providers.p]\nparameter_names = {{ seed = "{PASTED} " }}',
        f'[providers.p]\nrefused_parameters = "{PASTED}"',
        f'[providers.p]\npreset = "{PASTED}"',
        f'[providers.p]\ndialect = "{PASTED}"',
        f'[providers.p]\nbase_url = "https://h/v1?key={PASTED}"',
        f'[providers.p]\nbase_url = "https://h/v1#{PASTED}"',
        f'[providers.p]\nbase_url = "https://me:{PASTED}@h/v1"',
        f'[providers.p]\nbase_url = "ftp://h/{PASTED}"',
        f'[providers.p]\nbase_url = "{PASTED}"',
        f"[providers.p]\nkey = {PASTED}",
    ],
)
def test_a25_a_key_in_the_wrong_place_stops_the_start_unseen(tmp_path: Path, text: str) -> None:
    """People paste keys where names belong; the message goes to logs, so the key may not."""
    with pytest.raises(ConfigurationError) as caught:
        load(toml(tmp_path, text))
    assert PASTED not in str(caught.value)
    assert "providers" in str(caught.value).lower()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('token_field = "model"', "token_field='model': must be"),
        ('token_field = "stream"', "not a field that a request has itself"),
        ('parameter_names = { seed = "messages" }', "a table of new names"),
        ('parameter_names = { seed = "temperature" }', "seed='temperature': must not be"),
        ('parameter_names = { seed = "max_completion_tokens" }', "the name of another parameter"),
        ('idempotency_header = "Authorization"', "idempotency_header='Authorization': must be"),
        ('idempotency_header = "Host"', "not a header of HTTP's own"),
        ('auth_header = "x-key"\nidempotency_header = "X-Key"', "carries something else"),
        ('headers = { x-a = "1" }\nidempotency_header = "X-A"', "carries something else"),
        ('dialect = "anthropic"\nidempotency_header = "X-Api-Key"', "carries something else"),
        ('auth_header = "Content-Type"', "auth_header='Content-Type': must be"),
        ("prices = { input = 1e300, output = 1 }", "from 0 to 10000"),
    ],
)
def test_no_option_takes_the_place_of_another(tmp_path: Path, text: str, shown: str) -> None:
    """A parameter cannot become the model, nor an attempt's key the credential."""
    with pytest.raises(ConfigurationError) as caught:
        table(tmp_path, URL + text)
    assert shown in str(caught.value)


@pytest.mark.parametrize("url", ["https://h /v1", "https://h/\\nv1", "https://h/v1\\t"])
def test_no_blank_hides_in_an_address(tmp_path: Path, url: str) -> None:
    """The URL parser drops line breaks without a word: the address would be another one."""
    with pytest.raises(ConfigurationError, match="http or https URL"):
        load(toml(tmp_path, f'[providers.p]\nbase_url = "{url}"'))


def test_names_may_be_exchanged(tmp_path: Path) -> None:
    """A name is free once its own parameter has another one."""
    text = 'parameter_names = { seed = "temperature", temperature = "heat" }'
    assert table(tmp_path, URL + text).parameter_names["seed"] == "temperature"
