"""What is known of vendors and servers, as data: one entry adds one.

A preset holds the options that a table `[providers.NAME]` would otherwise have to name; the table
still overrides each of them. Addresses and habits are those of the vendors' own documents in
November 2026.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Options = Mapping[str, Any]

PROVIDERS_VARIABLE = "EMPANEL_PROVIDERS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """The options of one vendor or server.

    `url_variable` is the vendor's own variable for another address; a server at such an address may
    be asked without a key. `key_optional` is for servers that most people run without a key.
    """

    options: Options
    url_variable: str | None = None
    key_optional: bool = False

    @property
    def key_is_enough(self) -> bool:
        """Whether the provider is there, without any table, once its key variable is set."""
        return not self.key_optional and {"base_url", "key_variable"} <= self.options.keys()


def _openai(dialect: str) -> Preset:
    return Preset(
        options={
            "base_url": "https://api.openai.com/v1",
            "key_variable": "OPENAI_API_KEY",
            "dialect": dialect,
        },
        url_variable="OPENAI_BASE_URL",
    )


PRESETS: Mapping[str, Preset] = {
    "openai": _openai("chat"),
    "openai-responses": _openai("responses"),
    "anthropic": Preset(
        options={
            "base_url": "https://api.anthropic.com",
            "key_variable": "ANTHROPIC_API_KEY",
            "dialect": "anthropic",
        },
        url_variable="ANTHROPIC_BASE_URL",
    ),
    "gemini": Preset(
        options={
            "base_url": "https://generativelanguage.googleapis.com",
            "key_variable": "GEMINI_API_KEY",
            "dialect": "gemini",
            # Google serves v1 as well; servers that stand in for it mostly do not.
            "api_version": "v1beta",
        },
        url_variable="GOOGLE_GEMINI_BASE_URL",
    ),
    # The address is made from project and location; the key is a token of the process's account.
    "vertex": Preset(options={"dialect": "vertex"}),
    "mistral": Preset(
        options={
            "base_url": "https://api.mistral.ai/v1",
            "key_variable": "MISTRAL_API_KEY",
            "token_field": "max_tokens",
            "parameter_names": {"seed": "random_seed"},
        }
    ),
    "deepseek": Preset(
        options={
            "base_url": "https://api.deepseek.com",
            "key_variable": "DEEPSEEK_API_KEY",
            "token_field": "max_tokens",
            "schema_mode": "json_object",
            # Thinking is on by default and ignores these without a word: an answer would be kept
            # for a question that was not asked.
            "refused_parameters": ["temperature", "top_p"],
        }
    ),
    "xai": Preset(options={"base_url": "https://api.x.ai/v1", "key_variable": "XAI_API_KEY"}),
    "groq": Preset(
        options={
            "base_url": "https://api.groq.com/openai/v1",
            "key_variable": "GROQ_API_KEY",
            "schema_mode": "json_object",  # only some of its models take a schema, the others: 400
        }
    ),
    "together": Preset(
        options={
            "base_url": "https://api.together.xyz/v1",
            "key_variable": "TOGETHER_API_KEY",
            "token_field": "max_tokens",
        }
    ),
    "openrouter": Preset(
        options={
            "base_url": "https://openrouter.ai/api/v1",
            "key_variable": "OPENROUTER_API_KEY",
            "token_field": "max_tokens",
            # Else an upstream that lacks the schema or a seed may be taken and drop it unsaid.
            "extra_body": {"provider": {"require_parameters": True}},
        }
    ),
    # The resource's own address, and the API version where it asks for one, go into the table.
    "azure": Preset(options={"key_variable": "AZURE_OPENAI_API_KEY", "auth_header": "api-key"}),
    "litellm": Preset(
        options={
            "base_url": "http://127.0.0.1:4000/v1",
            "key_variable": "LITELLM_PROXY_API_KEY",
        },
        key_optional=True,
    ),
    "vllm": Preset(
        options={
            "base_url": "http://127.0.0.1:8000/v1",
            "key_variable": "VLLM_API_KEY",
            "token_field": "max_tokens",
        },
        key_optional=True,
    ),
    "ollama": Preset(
        options={
            "base_url": "http://127.0.0.1:11434/v1",
            "key_variable": "OLLAMA_API_KEY",
            "token_field": "max_tokens",
            "concurrency": 4,
        },
        key_optional=True,
    ),
    "llamacpp": Preset(
        options={
            "base_url": "http://127.0.0.1:8080/v1",
            "key_variable": "LLAMA_API_KEY",
            "integers": True,  # its grammar bounds integers but not decimals
            "max_string_characters": 400,
            "concurrency": 4,
        },
        key_optional=True,
    ),
}

# What carries the key where a table does not say; all other dialects take `Authorization`.
AUTH_HEADERS: Mapping[str, str] = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}


def provider_variables() -> tuple[str, ...]:
    """Return the variables of which each alone can make a provider available."""
    keys = (p.options["key_variable"] for p in PRESETS.values() if p.key_is_enough)
    urls = (preset.url_variable for preset in PRESETS.values() if preset.url_variable)
    return tuple(dict.fromkeys([PROVIDERS_VARIABLE, *keys, *urls]))
