"""The stack's folder, `.local/`: one stack at a time, logs of the last two."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.local.errors import AlreadyRunning


class StackFolder:
    """The paths below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.logs = self.root / "logs"
        self.earlier_logs = self.root / "logs.previous"
        self.info = self.root / "stack.json"
        self.certificates = self.root / "push-certificates.json"
        self.bridge_plan = self.root / "bridge.json"
        self.embedded_plan = self.root / "embedded.json"
        self.providers = self.root / "providers.toml"
        self.objects = self.root / "objects"
        self._files = (
            self.info,
            self.certificates,
            self.bridge_plan,
            self.embedded_plan,
            self.providers,
        )
        self._lock = self.root / "lock"

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the folder for one stack; its files are removed at the end, its logs are kept.

        The lock is the kernel's: it is free again when the holder ends, however it ends.

        Raises:
            AlreadyRunning: another process holds it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise AlreadyRunning(
                    f"a local stack runs in this checkout already (see {self.info}): "
                    "end it first, or use it"
                ) from exc
            self._remove_files()  # left behind by a stack that was killed
            self._rotate_logs()
            self.objects.mkdir()
            try:
                yield
            finally:
                self._remove_files()

    def _remove_files(self) -> None:
        for path in self._files:
            path.unlink(missing_ok=True)
        shutil.rmtree(self.objects, ignore_errors=True)

    def _rotate_logs(self) -> None:
        if self.logs.exists():
            shutil.rmtree(self.earlier_logs, ignore_errors=True)
            self.logs.rename(self.earlier_logs)
        self.logs.mkdir()
