"""Whether and where traces and metrics are sent, from OpenTelemetry's own variables.

Nothing is sent unless an endpoint is named, or an exporter is asked for by name. Headers, timeout,
compression, certificates, sampler and resource attributes are read by the SDK itself.
Source: OpenTelemetry specification, environment variables; OTLP exporter configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from functions.core.errors import ConfigurationError

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_DEFAULT_ENDPOINT = "http://localhost:4318"
_PROTOCOL = "http/protobuf"
_TIMEOUTS = tuple(f"OTEL_EXPORTER_OTLP_{signal}TIMEOUT" for signal in ("", "TRACES_", "METRICS_"))


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSettings:
    """The addresses that signals are sent to, None for a signal that is not sent."""

    traces: str | None
    metrics: str | None
    service: str
    version: str | None
    collector_seconds: float | None

    @property
    def any(self) -> bool:
        """Whether anything is sent."""
        return self.traces is not None or self.metrics is not None


def load(environ: Mapping[str, str]) -> ExportSettings:
    """Read and check the variables.

    Raises:
        ConfigurationError: a value breaks its rule; the text gives name, value and rule.
    """
    off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    target = environ.get("FUNCTION_TARGET", "").strip()
    return ExportSettings(
        traces=None if off else _address(environ, "TRACES", "v1/traces"),
        metrics=None if off else _address(environ, "METRICS", "v1/metrics"),
        service=environ.get("OTEL_SERVICE_NAME", "").strip()
        or environ.get("K_SERVICE", "").strip()
        or "-".join(filter(None, ("empanel", target.replace("_", "-")))),
        version=environ.get("K_REVISION", "").strip() or None,
        collector_seconds=None if any(map(environ.get, _TIMEOUTS)) else 3.0,
    )


def _address(environ: Mapping[str, str], signal: str, path: str) -> str | None:
    """Return where a signal goes; one endpoint for all has each signal's path added."""
    exporter = environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporter not in {"", "otlp", "none"}:
        raise ConfigurationError(f"OTEL_{signal}_EXPORTER={exporter!r} must be otlp or none")
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "").strip()
    common = environ.get(_ENDPOINT, "").strip()
    if exporter == "none" or not (exporter or own or common):
        return None
    _check_protocol(environ, signal)
    name = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT" if own else _ENDPOINT
    address = own or f"{(common or _DEFAULT_ENDPOINT).rstrip('/')}/{path}"
    if not address.startswith(("http://", "https://")):
        raise ConfigurationError(f"{name}={own or common!r} must be an http or https address")
    return address


def _check_protocol(environ: Mapping[str, str], signal: str) -> None:
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environ.get(name, "").strip():
            if protocol != _PROTOCOL:
                raise ConfigurationError(f"{name}={protocol!r} must be {_PROTOCOL}")
            return
