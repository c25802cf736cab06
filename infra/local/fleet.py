"""The function processes of a stack, and what each of them is told."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from infra.local.errors import StackError
from infra.local.function_process import FunctionProcess
from infra.local.network import LOOPBACK, free_port
from infra.local.options import StackOptions
from infra.local.processes import Children, child_environment
from infra.local.targets import API, EVALUATE, TARGETS, Target


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the instances of all functions have in common."""

    options: StackOptions
    environment: Mapping[str, str]
    children: Children
    on_restart: Callable[[], None]


class Functions(Protocol):
    """Where the functions listen and which processes serve them."""

    def urls(self, target: str) -> list[str]:
        """The addresses of a function's instances."""

    def pids(self) -> dict[str, list[int]]:
        """The running processes of each function."""


class Fleet:
    """All instances of all functions, one process each, on emulated services."""

    def __init__(self, launch: Launch, backend: Mapping[str, str]) -> None:
        launch = replace(launch, environment={**launch.environment, **backend})
        self._instances = {
            target.name: [
                _instance(launch, target, number)
                for number in range(1, _count(target, launch.options) + 1)
            ]
            for target in TARGETS
        }

    async def start(self) -> None:
        """Start every instance side by side and wait until all are healthy.

        Raises:
            ProcessFailed: the first that could not be started.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for instance in self._all():
                    group.create_task(instance.start())
        except* StackError as failures:
            raise failures.exceptions[0] from None

    async def stop(self) -> None:
        """End every instance, each with its grace time."""
        await asyncio.gather(*(instance.stop() for instance in self._all()))

    def instance(self, target: str, index: int = 0) -> FunctionProcess:
        """One instance of a function."""
        return self._instances[target][index]

    def urls(self, target: str) -> list[str]:
        """Where the instances of a function listen."""
        return [instance.url for instance in self._instances[target]]

    def pids(self) -> dict[str, list[int]]:
        """The running processes of each function."""
        return {
            target: [instance.pid for instance in instances if instance.pid is not None]
            for target, instances in self._instances.items()
        }

    def _all(self) -> list[FunctionProcess]:
        return [instance for instances in self._instances.values() for instance in instances]


def _count(target: Target, options: StackOptions) -> int:
    return options.evaluate_processes if target == EVALUATE else 1


def _instance(launch: Launch, target: Target, number: int) -> FunctionProcess:
    chosen_port = launch.options.api_port if target == API else None
    port = chosen_port or free_port()
    environment = child_environment(
        **{
            **launch.environment,
            **launch.options.environment,
            "FUNCTION_TARGET": target.name,
            "EMPANEL_HOST": LOOPBACK,
            "PORT": str(port),
        }
    )
    return FunctionProcess(
        name=target.name if number == 1 else f"{target.name}-{number}",
        port=port,
        command=launch.options.serving,
        environment=environment,
        children=launch.children,
        on_restart=launch.on_restart,
    )
