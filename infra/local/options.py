"""What a caller can choose about a stack."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from functions.providers.presets import provider_variables
from infra.local.emulators import EmulatorHosts
from infra.local.errors import StackError
from infra.local.files import CHECKOUT
from infra.local.targets import PROJECT

DEFAULT_REPAIR_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """How to run a stack; the defaults are those of `make up`, on a free port."""

    folder: Path = CHECKOUT / ".local"
    api_port: int | None = None
    """The API's port; None picks a free one."""
    project: str = field(default_factory=lambda: os.environ.get("GOOGLE_CLOUD_PROJECT") or PROJECT)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the functions, over those of this process."""
    model: bool | None = None
    """Whether to serve the local model; None does so when no provider is configured."""
    evaluate_processes: int = 1
    scheduler: bool = True
    """Whether `reconcile` is called in its rhythm."""
    embedded: bool | None = None
    """Whether to run on the in-memory adapters; None does so when no emulator can be had."""
    emulators: EmulatorHosts | None = None
    """Emulators that the caller runs; give each stack on them a project of its own."""
    serving: Sequence[str] = (sys.executable, "-m", "functions.serving")
    """The command that serves one function."""

    def setting(self, name: str) -> str | None:
        """A variable as the functions will see it; an empty one counts as unset."""
        return self.environment.get(name, os.environ.get(name)) or None

    @property
    def serves_model(self) -> bool:
        """Whether the local model is the provider."""
        if self.model is not None:
            return self.model
        return not any(self.setting(name) for name in provider_variables())

    @property
    def wants_embedded(self) -> bool:
        """Whether the embedded stack was asked for (`EMPANEL_EMBEDDED=1`)."""
        if self.embedded is not None:
            return self.embedded
        value = self.setting("EMPANEL_EMBEDDED") or "0"
        if value not in ("0", "1"):
            raise StackError(f"EMPANEL_EMBEDDED={value!r}: must be 0 or 1")
        return value == "1"

    @property
    def repair_seconds(self) -> float:
        """The scheduler's period in seconds, from `EMPANEL_REPAIR_SECONDS`."""
        value = self.setting("EMPANEL_REPAIR_SECONDS")
        if value is None:
            return DEFAULT_REPAIR_SECONDS
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        if not 1 <= seconds <= 60:
            raise StackError(f"EMPANEL_REPAIR_SECONDS={value!r}: must be a number from 1 to 60")
        return seconds
