"""The command that injects faults into a running deployment and accounts for them."""

import os
from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from functions.cli.commands import command
from functions.cli.drill_tables import drill_table, drill_view
from functions.cli.exits import Exit, Misused, Unreachable
from functions.cli.reconciler import find_reconciler
from functions.cli.screen import Screen, print_raw, run_alone
from functions.cli.target import CHECKOUT
from functions.core.errors import ConfigurationError, EmpanelError

if TYPE_CHECKING:
    from functions.drill.deployment import Deployment
    from functions.drill.injected import Drill
    from functions.drill.site import Asked

# `functions.drill` is imported where it is used: the commands that speak to the API need none of
# Google's clients, which take a second to load.

LOCAL_PROVIDER, LOCAL_MODEL = "openai", "smollm2"  # what a local stack without a provider serves
PATIENCE_SECONDS = 300.0

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Drills; all without a name.")
]
Provider = Annotated[
    str | None, typer.Option(help="Whom the drills' jobs ask; the first configured without.")
]
Model = Annotated[
    str | None, typer.Option(help="The model; EMPANEL_DEMO_MODEL, or the stack's own, without.")
]
AllowReal = Annotated[
    bool, typer.Option("--allow-real", help="Also where no emulator is; then without kills.")
]
Resolve = Annotated[
    bool, typer.Option("--resolve", help="Resolve the incidents that the drills have caused.")
]
Patience = Annotated[float, typer.Option(min=1, help="Longest wait for a condition, in seconds.")]
Listing = Annotated[bool, typer.Option("--list", help="Show the drills and run none.")]
Json = Annotated[bool, typer.Option("--json", help="Print the accounts as JSON and nothing else.")]


@command()
def drill(
    names: Names = None,
    provider: Provider = None,
    model: Model = None,
    allow_real: AllowReal = False,
    resolve: Resolve = False,
    patience: Patience = PATIENCE_SECONDS,
    show_list: Listing = False,
    json: Json = False,
) -> None:
    """Inject a fault into a running stack, and see whether the books say exactly what happened.

    Ends with 1 when they do not. Jobs, gaps and incidents of a drill stay, labelled `drill`.
    """

    async def work(screen: Screen) -> Exit:
        if show_list:
            return _list(screen)
        deployment = find_deployment(os.environ, CHECKOUT)
        drills = _chosen(deployment, names or (), allow_real=allow_real)
        asked = choose_asked(os.environ, provider, model)
        return await _run(screen, deployment, asked, drills, patience, resolve=resolve)

    run_alone(work, json_only=json)


async def _run(
    screen: Screen,
    deployment: "Deployment",
    asked: "Asked",
    drills: "Sequence[Drill]",
    patience_seconds: float,
    *,
    resolve: bool,
) -> Exit:
    from functions.drill.running import run
    from functions.drill.site import open_site

    views: list[dict[str, Any]] = []
    screen.say(f"asking {asked.provider}/{asked.model}; first a job with no fault")
    try:
        async with open_site(deployment, asked, patience_seconds=patience_seconds) as site:
            async for account in run(site, drills, resolve=resolve):
                views.append(account.view())
                screen.show_in_full(drill_view(views[-1]))
    except EmpanelError as exc:
        raise Unreachable(f"the deployment does not work without a fault either: {exc}") from exc
    kept = sum(view["accounted"] for view in views)
    screen.say(f"{kept} of {len(views)} drills accounted for.")
    accounted = kept == len(views)
    if screen.json_only:
        print_raw(dumps({"accounted": accounted, "drills": views}, ensure_ascii=False).encode())
    return Exit.DONE if accounted else Exit.ENDED_OTHERWISE


def _list(screen: Screen) -> Exit:
    from functions.drill.catalog import DRILLS

    rows = [
        {"drill": d.name, "injects": d.injects, "finds": d.finds, "local": d.local} for d in DRILLS
    ]
    if screen.json_only:
        print_raw(dumps({"drills": rows}, ensure_ascii=False).encode())
    else:
        screen.out.print(drill_table(rows))
    return Exit.DONE


def _chosen(
    deployment: "Deployment", names: Sequence[str], *, allow_real: bool
) -> "Sequence[Drill]":
    from functions.drill.deployment import DrillRefused
    from functions.drill.running import chosen

    try:
        deployment.require_permission(allow_real=allow_real)
        return chosen(names, local=deployment.stack is not None)
    except DrillRefused as exc:
        raise Misused(str(exc)) from exc


def find_deployment(environ: Mapping[str, str], checkout: Path) -> "Deployment":
    """Return the deployment of `EMPANEL_URL` and its variables, else the local stack.

    Raises:
        Misused: the environment is not complete, or the stack is of a kind that has no drills.
        Unreachable: there is neither.
    """
    from functions import config
    from functions.drill.deployment import Deployment, DrillRefused, read_stack

    url = environ.get("EMPANEL_URL")
    try:
        if not url:
            return read_stack(checkout / ".local" / "stack.json")
        key, reconcile = environ.get("EMPANEL_API_KEY"), environ.get("EMPANEL_RECONCILE_URL")
        if not key or not reconcile:
            raise Misused("EMPANEL_URL needs EMPANEL_API_KEY and EMPANEL_RECONCILE_URL beside it.")
        address, token = find_reconciler(environ, checkout)
        return Deployment(
            settings=config.load(environ),
            api=url,
            api_key=key,
            reconcile=address,
            reconcile_token=token,
        )
    except FileNotFoundError:
        raise Unreachable("No local stack is running and EMPANEL_URL is not set.") from None
    except (DrillRefused, ConfigurationError) as exc:
        raise Misused(str(exc)) from exc
    except OSError as exc:
        raise Unreachable(f"the local stack's file cannot be read: {exc}") from exc


def choose_asked(environ: Mapping[str, str], provider: str | None, model: str | None) -> "Asked":
    """Return whom to ask: as named, else the first configured provider, else the stack's model.

    Raises:
        Misused: the provider's model is not named.
    """
    from functions.drill.site import Asked
    from functions.providers.presets import provider_variables
    from functions.providers.registry import endpoints

    configured = any(environ.get(name) for name in provider_variables())
    try:
        known = list(endpoints(environ)) if configured and provider is None else []
    except ConfigurationError as exc:
        raise Misused(str(exc)) from exc
    model = model or environ.get("EMPANEL_DEMO_MODEL")
    if model is None and (configured or provider is not None):
        raise Misused("Name the model to ask: --model MODEL, or EMPANEL_DEMO_MODEL.")
    chosen = provider or (known[0] if known else LOCAL_PROVIDER)
    return Asked(provider=chosen, model=model or LOCAL_MODEL)
