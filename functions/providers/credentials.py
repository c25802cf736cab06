"""What proves to a provider who asks: a key that stays, or a token that ends and is renewed.

A call asks for a `Pass` before it sends, and reports what became of it. A pass that the server
accepted once and refuses later has ended early: the call fails, retryable, and the next attempt
gets a new one. A new pass that is refused is a wrong credential. One attempt stays one request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from functions.core.verdicts import CallFailure
from functions.providers.redaction import Redact, redactor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Pass:
    """The headers that one call sends, and the removal of their secrets from what it keeps."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    redact: Redact = field(repr=False)


class Credentials(Protocol):
    """Where the passes of an endpoint come from. Nothing is asked for before the first call."""

    async def get(self) -> Pass | CallFailure:
        """Return a pass, or why there is none: a failure with `sent` False."""
        ...

    def accepted(self, used: Pass) -> None:
        """Note that the server took the pass."""
        ...

    def refused(self, used: Pass) -> bool:
        """Drop a pass that was answered 401; return whether a new one may help."""
        ...


class FixedKey:
    """A key that the dialect puts into its requests itself, or no key at all."""

    def __init__(self, api_key: str | None) -> None:
        self._pass = Pass(redact=redactor([api_key]))

    async def get(self) -> Pass:
        """Return the same pass every time."""
        return self._pass

    def accepted(self, used: Pass) -> None:
        """Nothing follows."""

    def refused(self, used: Pass) -> bool:
        """Return False: there is no other key."""
        return False
