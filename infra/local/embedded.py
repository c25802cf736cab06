"""placeholder"""

from infra.local.errors import StackError
from infra.local.fleet import Functions, Launch
from infra.local.processes import Child


async def start_embedded(launch: Launch, api_key: str) -> tuple[Child, Functions]:
    raise StackError("none")
