"""Small files of the stack's folder, which readers never see half written."""

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
"""Where the processes of the stack are started, so that they find the packages."""


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner can read it, for it may hold a key."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
