"""How a provider is named in traces and metrics: by OpenTelemetry's words, not by ours. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Vendor:
    """Who answers at a configured provider; `name` and `operation` are well-known where one fits.

    Source: OpenTelemetry semantic conventions for generative AI, `gen_ai.provider.name` and
    `gen_ai.operation.name`. `address` and `port` are those of the server that is asked.
    """

    name: str
    operation: str = "chat"
    address: str | None = None
    port: int | None = None
