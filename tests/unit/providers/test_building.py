"""What an endpoint's own habits add to a request."""

import json
from typing import Any

import pytest

from functions.core.verdicts import CallFailure, CallRequest
from functions.providers import chat
from functions.providers.base import Endpoint, WireRequest, url_of
from functions.providers.building import json_request

SCHEMA = {"type": "object"}


def endpoint(**habits: Any) -> Endpoint:
    """Return an endpoint with these habits."""
    return Endpoint(name="p", base_url="https://h/v1/", **habits)


def asked(habits: dict[str, Any], **parameters: Any) -> WireRequest | CallFailure:
    """Return a question in the chat dialect, put to an endpoint with these habits."""
    request = CallRequest(model="m", system="s", user="u", schema=SCHEMA, parameters=parameters)
    return chat.build(endpoint(**habits), request)


def body(habits: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """Return the body of such a question."""
    wire = asked(habits, **parameters)
    assert isinstance(wire, WireRequest)
    value: dict[str, Any] = json.loads(wire.body)
    return value


@pytest.mark.parametrize(
    ("own", "extra", "sent"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"b": {"c": 2}}, {"a": 1, "b": {"c": 2}}),
        ({"a": 1}, {"a": 2}, {"a": 1}),
        (
            {"c": {"format": {"x": 1}}},
            {"c": {"format": {"x": 9, "y": 2}, "z": 3}},
            {"c": {"format": {"x": 1, "y": 2}, "z": 3}},
        ),
        ({"a": {"b": 1}}, {"a": 2}, {"a": {"b": 1}}),
        ({"a": 1}, {"a": {"b": 2}}, {"a": 1}),
        ({"a": [1]}, {"a": [2, 3]}, {"a": [1]}),
    ],
)
def test_an_extra_body_is_merged_below_the_requests_own_words(
    own: dict[str, Any], extra: dict[str, Any], sent: dict[str, Any]
) -> None:
    """Objects are merged at every depth; where both say something the request wins."""
    wire = json_request(endpoint(extra_body=extra), "/p", own)
    assert json.loads(wire.body) == sent


def test_a_thinking_switch_is_sent_with_every_question() -> None:
    """DeepSeek's switch stands beside what every question has."""
    sent = body({"extra_body": {"thinking": {"type": "disabled"}}})
    assert sent["thinking"] == {"type": "disabled"}
    assert sent["model"] == "m"


def test_a_renamed_parameter_goes_under_its_new_name() -> None:
    """Mistral's seed is `random_seed`; nothing is sent under the old name."""
    habits = {"parameter_names": {"seed": "random_seed"}, "token_field": "max_tokens"}
    sent = body(habits, seed=7, max_output_tokens=9)
    assert (sent["random_seed"], sent["max_tokens"]) == (7, 9)
    assert not {"seed", "max_output_tokens"} & sent.keys()


def test_a_parameter_that_the_server_ignores_is_refused() -> None:
    """An answer to a question that was not asked is not bought: the request is never sent."""
    failure = asked({"refused_parameters": ("temperature",)}, temperature=0.5, seed=1)
    assert isinstance(failure, CallFailure)
    assert (failure.code, failure.sent) == ("invalid_request", False)
    assert "temperature" in failure.message
    assert "seed" not in failure.message


@pytest.mark.parametrize(
    ("query", "url"),
    [
        ({}, "https://h/v1/p"),
        ({"api-version": "2026-10-01"}, "https://h/v1/p?api-version=2026-10-01"),
        ({"a": "x y&z", "b": "1"}, "https://h/v1/p?a=x+y%26z&b=1"),
    ],
)
def test_a_fixed_query_is_added_to_the_url(query: dict[str, str], url: str) -> None:
    """Azure's API version goes into every URL, encoded."""
    assert url_of(endpoint(query=query), "/p") == url
