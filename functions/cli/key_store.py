"""The ledger that keys are made in: the local stack's emulator, or a project's Firestore.

The local stack is meant while one runs, unless `EMPANEL_URL` names another deployment; then
`GOOGLE_CLOUD_PROJECT` names the project, and Google's credentials at hand open it.
"""

import getpass
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from functions.cli.exits import Misused, Unreachable
from functions.cli.target import CHECKOUT
from functions.core.errors import ConfigurationError, LedgerError, UnreadableRecord

if TYPE_CHECKING:
    from functions.config import Settings
    from functions.core.ports import Ledger

# Google's clients are imported where they are used: the commands that speak to the API need none of
# them, and they take a second to load.


class _Stack(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    api: str
    project: str
    firestore: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyStore:
    """The ledger, whose it is in words, who works on it, and how long its log is kept."""

    ledger: "Ledger"
    place: str
    by: str
    retention_days: int


@asynccontextmanager
async def open_key_store(
    environ: Mapping[str, str] = os.environ, checkout: Path | None = None
) -> AsyncIterator[KeyStore]:
    """The key store that the local stack or the environment names.

    Raises:
        Misused: neither does, or a setting breaks its rule.
        Unreachable: the ledger gives no answer, or there are no credentials for it.
    """
    from google.auth.exceptions import GoogleAuthError

    from functions.adapters.clock import SystemClock
    from functions.adapters.firestore import FirestoreLedger

    settings, place = find_settings(environ, checkout or CHECKOUT)
    ledger = FirestoreLedger(
        settings.project, emulator_host=settings.firestore_emulator, clock=SystemClock()
    )
    try:
        yield KeyStore(
            ledger=ledger,
            place=place,
            by=f"cli:{getpass.getuser()}",
            retention_days=settings.retention_days,
        )
    except GoogleAuthError as exc:
        raise Unreachable(f"No Google credentials open {place}: {exc}") from exc
    except (LedgerError, UnreadableRecord) as exc:
        raise Unreachable(f"The ledger of {place} gave no certain answer: {exc}") from exc
    finally:
        await ledger.aclose()


def find_settings(environ: Mapping[str, str], checkout: Path) -> "tuple[Settings, str]":
    """Return the settings of the deployment that is meant, and its name in words.

    Raises:
        Misused, Unreachable: as `open_key_store`.
    """
    from functions import config

    stack = _read_stack(checkout / ".local" / "stack.json")
    url = environ.get("EMPANEL_URL")
    if stack is not None and (not url or url.rstrip("/") == stack.api.rstrip("/")):
        if stack.firestore is None:
            raise Misused("The embedded stack keeps its ledger in its own memory: no key fits in.")
        named = {"GOOGLE_CLOUD_PROJECT": stack.project, "FIRESTORE_EMULATOR_HOST": stack.firestore}
        return config.load(named), "the local stack"
    if not environ.get("GOOGLE_CLOUD_PROJECT", "").strip():
        raise Misused("No local stack is meant, and GOOGLE_CLOUD_PROJECT names no project.")
    names = ("GOOGLE_CLOUD_PROJECT", "FIRESTORE_EMULATOR_HOST", "EMPANEL_RETENTION_DAYS")
    try:
        settings = config.load({name: environ[name] for name in names if name in environ})
    except ConfigurationError as exc:
        raise Misused(str(exc)) from exc
    return settings, f"the project {settings.project}"


def _read_stack(path: Path) -> _Stack | None:
    try:
        return _Stack.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as exc:
        raise Unreachable(f"{path} cannot be read as a stack file: {exc}") from exc
