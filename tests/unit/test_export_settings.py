"""Where traces and metrics go: nowhere unless asked for, and a mistake stops the start."""

import pytest

from functions.core.errors import ConfigurationError
from functions.export_settings import load

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "traces", "metrics"),
    [
        ({}, None, None),
        ({"OTEL_SERVICE_NAME": "x"}, None, None),
        ({BASE: "http://c:4318"}, "http://c:4318/v1/traces", "http://c:4318/v1/metrics"),
        ({BASE: "https://c/otlp/"}, "https://c/otlp/v1/traces", "https://c/otlp/v1/metrics"),
        (
            {BASE: "http://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"},
            "http://t/x",
            "http://c/v1/metrics",
        ),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/x"}, None, "http://m/x"),
        ({BASE: "http://c", "OTEL_METRICS_EXPORTER": "none"}, "http://c/v1/traces", None),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces", None),
        ({BASE: "http://c", "OTEL_SDK_DISABLED": "True"}, None, None),
    ],
)
def test_signals_go_where_the_standard_variables_say(
    environ: dict[str, str], traces: str | None, metrics: str | None
) -> None:
    """The endpoint for all has each signal's path added, a signal's own is taken as it is."""
    settings = load(environ)
    assert (settings.traces, settings.metrics) == (traces, metrics)
    assert settings.any is (traces is not None or metrics is not None)


@pytest.mark.parametrize(
    ("environ", "service"),
    [
        ({"OTEL_SERVICE_NAME": "mine", "K_SERVICE": "k"}, "mine"),
        ({"K_SERVICE": "empanel-evaluate", "FUNCTION_TARGET": "evaluate"}, "empanel-evaluate"),
        ({"FUNCTION_TARGET": "dead_letter"}, "empanel-dead-letter"),
        ({}, "empanel"),
    ],
)
def test_a_service_is_named_by_the_operator_the_platform_or_its_target(
    environ: dict[str, str], service: str
) -> None:
    """In this order."""
    assert load(environ).service == service


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER='jaeger' must be otlp or none"),
        ({BASE: "collector:4318"}, f"{BASE}='collector:4318' must be an http or https address"),
        (
            {BASE: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL='grpc' must be http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "m"},
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT='m' must be an http or https address",
        ),
    ],
)
def test_a_mistake_is_told_with_name_value_and_rule(environ: dict[str, str], told: str) -> None:
    """Telemetry that goes nowhere, silently, is found out when it is needed."""
    with pytest.raises(ConfigurationError) as refused:
        load(environ)
    assert str(refused.value) == told


@pytest.mark.parametrize("signal", ["", "TRACES_", "METRICS_"])
def test_a_timeout_that_the_operator_names_is_the_sdks_to_read(signal: str) -> None:
    """For all signals or for one; without any, the collector has three seconds."""
    assert load({BASE: "http://c"}).collector_seconds == 3.0
    named = {BASE: "http://c", f"OTEL_EXPORTER_OTLP_{signal}TIMEOUT": "7"}
    assert load(named).collector_seconds is None
