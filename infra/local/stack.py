"""The local stack as a whole: starts every part in order, keeps the functions alive, ends it all.

    async with Stack(StackOptions()) as stack:
        await stack.run(something_that_uses(stack.info))

The functions restart as the platform would restart them. The parts below them hold the data: when
one of those ends, the stack is over, and `run` says so.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from functions.keys import new_key
from infra.local.bridge import Plan, Route
from infra.local.embedded import EmbeddedPlan, choose_ports, start_embedded
from infra.local.errors import StackError
from infra.local.fleet import Fleet, Functions, Launch
from infra.local.folder import StackFolder
from infra.local.function_process import GRACE_SECONDS, FunctionProcess
from infra.local.info import StackInfo
from infra.local.keys import new_webhook_secret, record_api_key
from infra.local.network import require_free
from infra.local.options import StackOptions
from infra.local.parts import Backend, check, start_backend, start_model
from infra.local.processes import Child, Children, child_environment
from infra.local.pubsub import create_topics, subscription_path
from infra.local.scheduler import Schedule, run_scheduler
from infra.local.storage import create_bucket
from infra.local.targets import (
    API,
    BUCKET,
    PUSHED,
    RECONCILE,
    TARGETS,
    TENANT,
    push_account,
    scheduler_account,
    topic_environment,
    topic_names,
)
from infra.local.tokens import TokenSource, issue_token, new_signing_key

T = TypeVar("T")

AUDIENCE = "https://empanel.local/push"
STACK_TOKEN_SECONDS = 30 * 86_400  # the token in stack.json outlives any local stack


class Stack:
    """A running stack; `StackOptions` says what can be chosen.

    Entering raises `StackError` with a sentence for the user when a part cannot be started.
    """

    def __init__(self, options: StackOptions) -> None:
        self.options = options
        self.folder = StackFolder(options.folder)
        self._key = new_signing_key()
        self._api_key = new_key()
        self._webhook_secret = new_webhook_secret()
        self._push_token = issue_token(
            self._key,
            audience=AUDIENCE,
            account=push_account(options.project),
            lifetime_seconds=STACK_TOKEN_SECONDS,
        )
        self._backend: Backend | None = None
        self._functions: Functions | None = None
        self._watched: list[Child] = []
        self._failure_told = False

    async def __aenter__(self) -> Self:
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with AsyncExitStack() as parts:
            await self._start(parts)
            self._parts = parts.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._parts.__aexit__(exc_type, exc, traceback)
        failure = self._failed.exception() if self._failed.done() else None
        if failure is not None and exc is None and not self._failure_told:
            raise failure

    @property
    def info(self) -> StackInfo:
        """What runs now; the PIDs change with restarts."""
        backend, functions = self._backend, self._running_functions()
        return StackInfo(
            api=functions.urls(API.name)[0],
            project=self.options.project,
            firestore=backend.hosts.firestore if backend else None,
            pubsub=backend.hosts.pubsub if backend else None,
            storage=backend.storage if backend else None,
            bucket=BUCKET,
            api_key=self._api_key,
            push_token=self._push_token,
            webhook_secret=self._webhook_secrets().split(",")[0],
            embedded=backend is None,
            functions={t.name: functions.urls(t.name)[0] for t in TARGETS if t != API},
            topics=topic_names(),
            pids=functions.pids(),
            supervisor=os.getpid(),
            parts={child.name: child.pid for child in self._watched},
        )

    def urls(self, target: str) -> list[str]:
        """The addresses of all instances of a function."""
        return self._running_functions().urls(target)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something as long as the stack stands; its result.

        Raises:
            ProcessFailed: a part that cannot be replaced ended first; the work is cancelled.
        """
        task = asyncio.create_task(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._failed}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self._failure_told = True
                self._failed.result()
            return await task
        finally:
            await _cancel(task)

    def kill(self, target: str, signal_number: int = signal.SIGKILL, index: int = 0) -> int:
        """Send a signal to one process of a function, which is then started again; its PID."""
        return self._instance(target, index).kill(signal_number)

    async def restarted(self, target: str, killed_pid: int, index: int = 0) -> int:
        """Wait until the successor of a killed process is healthy; its PID."""
        return await self._instance(target, index).ready(not_pid=killed_pid)

    async def hold(self, target: str, index: int = 0) -> None:
        """End one process of a function and keep it down until `release`."""
        await self._instance(target, index).hold()

    async def release(self, target: str, index: int = 0) -> int:
        """Start a function again that is held down; its PID once it is healthy."""
        self._instance(target, index).release()
        return await self._instance(target, index).ready()

    async def _start(self, parts: AsyncExitStack) -> None:
        options = self.options
        check(options)
        if options.api_port is not None:
            require_free(options.api_port)
        parts.enter_context(self.folder.in_use())
        children = await parts.enter_async_context(Children(self.folder.logs))
        self._backend = await start_backend(options, children, self.folder.objects)
        environment = self._common_environment()
        if options.serves_model:
            model, provider = await start_model(children, self.folder.providers)
            environment |= provider
            self._watch(parts, model)
        launch = Launch(
            options=options,
            environment=environment,
            children=children,
            on_restart=self._save_info,
        )
        await self._start_functions(parts, launch)
        if options.scheduler:
            self._start_scheduler(parts)
        self._save_info()

    def _common_environment(self) -> dict[str, str]:
        """What all functions are told, whatever they run on."""
        project = self.options.project
        self._key.save_certificates(self.folder.certificates)
        return {
            "GOOGLE_CLOUD_PROJECT": project,
            "EMPANEL_BUCKET": BUCKET,
            "EMPANEL_PUSH_AUDIENCE": AUDIENCE,
            "EMPANEL_PUSH_ACCOUNTS": f"{push_account(project)},{scheduler_account(project)}",
            "EMPANEL_PUSH_CERTS": str(self.folder.certificates),
            "EMPANEL_WEBHOOK_SECRETS": self._webhook_secrets(),
            "EMPANEL_OPERATOR_TENANT": TENANT,
            **topic_environment(),
        }

    def _webhook_secrets(self) -> str:
        """The secrets of the caller's environment, else one of the stack's own."""
        return self.options.setting("EMPANEL_WEBHOOK_SECRETS") or self._webhook_secret

    async def _start_functions(self, parts: AsyncExitStack, launch: Launch) -> None:
        backend = self._backend
        if backend is None:
            await self._start_embedded(parts, launch)
            return
        for child in backend.started:
            self._watch(parts, child)
        await self._prepare(backend)
        fleet = Fleet(launch, backend.environment())
        self._functions = fleet
        self._start_bridge(parts, launch.children, fleet, backend)
        parts.push_async_callback(fleet.stop)
        await fleet.start()

    async def _start_embedded(self, parts: AsyncExitStack, launch: Launch) -> None:
        plan = EmbeddedPlan(
            ports=choose_ports(self.options.api_port),
            api_key=self._api_key,
            audience=AUDIENCE,
            account=push_account(self.options.project),
            key=self._key,
        )
        child, self._functions = await start_embedded(launch, plan, self.folder.embedded_plan)
        parts.push_async_callback(launch.children.stop, child, grace_seconds=GRACE_SECONDS)
        self._watch(parts, child)

    async def _prepare(self, backend: Backend) -> None:
        """Create what a deployment would have created before the first function starts."""
        project = self.options.project
        await create_topics(backend.hosts.pubsub, project)
        await create_bucket(backend.storage, project, BUCKET)
        await record_api_key(backend.hosts.firestore, project, self._api_key)

    def _start_bridge(
        self, parts: AsyncExitStack, children: Children, fleet: Fleet, backend: Backend
    ) -> None:
        project = self.options.project
        Plan(
            pubsub=backend.hosts.pubsub,
            routes=[
                Route(
                    subscription=subscription_path(project, target.subscription),
                    urls=fleet.urls(target.name),
                )
                for target in PUSHED
            ],
            audience=AUDIENCE,
            account=push_account(project),
            key=self._key,
        ).save(self.folder.bridge_plan)
        command = [sys.executable, "-m", "infra.local.bridge", str(self.folder.bridge_plan)]
        bridge = children.start("bridge", command, child_environment())
        parts.push_async_callback(children.stop, bridge, grace_seconds=2.0)
        self._watch(parts, bridge)

    def _start_scheduler(self, parts: AsyncExitStack) -> None:
        url = self._running_functions().urls(RECONCILE.name)[0]
        schedule = Schedule(url=f"{url}/?mode=repair", period_seconds=self.options.repair_seconds)
        account = scheduler_account(self.options.project)
        tokens = TokenSource(self._key, audience=AUDIENCE, account=account)
        self._in_background(parts, run_scheduler(schedule, tokens))

    def _watch(self, parts: AsyncExitStack, child: Child) -> None:
        """Make the end of this process the end of the stack."""
        self._watched.append(child)
        self._in_background(parts, self._fail_after(child))

    async def _fail_after(self, child: Child) -> None:
        exit_code = await child.wait()
        if not self._failed.done():
            failure = child.failure(f"ended with exit code {exit_code}: the stack is over")
            self._failed.set_exception(failure)

    def _in_background(self, parts: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
        parts.push_async_callback(_cancel, asyncio.create_task(work))

    def _running_functions(self) -> Functions:
        if self._functions is None:
            raise StackError("the stack has not been started")
        return self._functions

    def _instance(self, target: str, index: int) -> FunctionProcess:
        if not isinstance(self._functions, Fleet):
            raise StackError("only functions with a process of their own can be restarted")
        return self._functions.instance(target, index)

    def _save_info(self) -> None:
        self.info.save(self.folder.info)


async def _cancel(task: "asyncio.Task[Any]") -> None:
    """End a task and wait for its end; its outcome is for whoever awaits the task itself."""
    task.cancel()
    await asyncio.wait({task})
