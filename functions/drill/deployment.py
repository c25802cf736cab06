"""Where a drill works: the deployment's settings, its addresses, and what opens them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from functions import config
from functions.config import Settings
from functions.core.errors import ConfigurationError, EmpanelError

LEASE_SECONDS = "5"  # of the drill's own workers: the shortest there is, since some are to run out


class DrillRefused(EmpanelError):
    """A drill must not, or cannot, run here; nothing was injected."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One deployment. On a local stack alone there are `stack`, its `stack.json`, and `evaluate`,
    the address that takes pushes with the token of `reconcile`.
    """

    settings: Settings
    api: str
    api_key: str = field(repr=False)
    reconcile: str
    reconcile_token: str = field(repr=False)
    evaluate: str | None = None
    stack: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a worker of the drill's finds the same deployment."""
        settings = self.settings
        named = {
            "GOOGLE_CLOUD_PROJECT": settings.project,
            "EMPANEL_BUCKET": settings.bucket,
            "EMPANEL_EVALUATE_TOPIC": settings.evaluate_topic,
            "EMPANEL_NOTIFY_TOPIC": settings.notify_topic,
            "EMPANEL_EVENTS_TOPIC": settings.events_topic,
            "FIRESTORE_EMULATOR_HOST": settings.firestore_emulator,
            "PUBSUB_EMULATOR_HOST": settings.pubsub_emulator,
            "STORAGE_EMULATOR_HOST": settings.storage_emulator,
            "EMPANEL_RETENTION_DAYS": str(settings.retention_days),
            "EMPANEL_LEASE_SECONDS": LEASE_SECONDS,
        }
        return {name: value for name, value in named.items() if value is not None}

    def require_permission(self, *, allow_real: bool) -> None:
        """Refuse a deployment that is not on emulators, unless that was asked for.

        Raises:
            DrillRefused: it is a real one.
        """
        if not self.settings.on_emulators and not allow_real:
            raise DrillRefused(
                f"project {self.settings.project} is not on emulators: a drill leaves real jobs, "
                "gaps and incidents in its books. --allow-real runs those drills that kill nothing"
            )


def read_stack(path: Path) -> Deployment:
    """Return the deployment of a running local stack.

    Raises:
        DrillRefused: the stack is embedded, or the file is not a stack's.
        OSError: the file cannot be read.
    """
    try:
        stack: dict[str, Any] = json.loads(path.read_bytes())
        if stack["embedded"]:
            raise DrillRefused(
                "the embedded stack keeps its records in its own memory: no drill can reach them"
            )
        environ = {
            "GOOGLE_CLOUD_PROJECT": stack["project"],
            "EMPANEL_BUCKET": stack["bucket"],
            "EMPANEL_EVALUATE_TOPIC": stack["topics"]["evaluate"],
            "EMPANEL_NOTIFY_TOPIC": stack["topics"]["notify"],
            "EMPANEL_EVENTS_TOPIC": stack["topics"]["events"],
            "FIRESTORE_EMULATOR_HOST": stack["firestore"],
            "PUBSUB_EMULATOR_HOST": stack["pubsub"],
            "STORAGE_EMULATOR_HOST": stack["storage"],
            "EMPANEL_LEASE_SECONDS": LEASE_SECONDS,
        }
        return Deployment(
            settings=config.load(environ),
            api=stack["api"],
            api_key=stack["api_key"],
            reconcile=stack["functions"]["reconcile"],
            reconcile_token=stack["push_token"],
            evaluate=stack["functions"]["evaluate"],
            stack=path,
        )
    except (ValueError, KeyError, TypeError, ConfigurationError) as exc:
        raise DrillRefused(f"{path} cannot be read as a stack file: {exc!r}") from exc


def function_pids(path: Path, target: str) -> tuple[int, ...]:
    """Return the processes that serve a target of the local stack now.

    Raises:
        OSError, ValueError, KeyError: the stack is gone.
    """
    return tuple(json.loads(path.read_bytes())["pids"][target])
