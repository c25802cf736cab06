"""`.local/stack.json`: what runs and where, for the CLI, the demo and the tests."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from infra.local.files import write_atomically


@dataclass(frozen=True, kw_only=True)
class StackInfo:
    """The content of `stack.json`; the fields that tools rely on.

    `api` and `storage` are URLs, `firestore` and `pubsub` are `host:port`; the last three are None
    on the embedded stack. Receivers verify notifications with `webhook_secret`. `functions`,
    `topics` and `pids` are keyed by target. `parts` holds the PIDs of what the stack started
    besides the functions, and `supervisor` its own.
    """

    api: str
    project: str
    firestore: str | None
    pubsub: str | None
    storage: str | None
    bucket: str
    api_key: str
    push_token: str
    webhook_secret: str
    embedded: bool
    functions: Mapping[str, str]
    topics: Mapping[str, str]
    pids: Mapping[str, Sequence[int]]
    supervisor: int
    parts: Mapping[str, int]

    def save(self, path: Path) -> None:
        """Write the file in one step."""
        write_atomically(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file of a running stack."""
        return cls(**json.loads(path.read_text()))
