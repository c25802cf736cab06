"""The commands about the books: audits and incidents."""

from typing import Annotated

import typer

from functions.cli.book_tables import audit_list, audit_view, incident_table, pass_view
from functions.cli.client import Api
from functions.cli.commands import JsonOnly, command
from functions.cli.exits import Exit, Misused
from functions.cli.reconciler import open_reconciler
from functions.cli.screen import Screen, run, run_alone


@command()
def audit(
    window: Annotated[
        str | None, typer.Argument(metavar="[WINDOW]", help="One hour, as 2026-11-29T12.")
    ] = None,
    run_now: Annotated[
        bool, typer.Option("--run", help="Audit now, all windows that are not sealed.")
    ] = False,
    first: Annotated[str | None, typer.Option("--from", help="The first hour to list.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="The last hour to list.")] = None,
    json: JsonOnly = False,
) -> None:
    """Show what was accepted, how it ended and what is missing. Ends with 1 when anything is."""
    if run_now:
        if window is not None or first is not None or last is not None:
            raise typer.BadParameter("--run audits every open window; name none with it")
        run_alone(_audit_now, json_only=json)

    async def work(api: Api, screen: Screen) -> Exit:
        if window is None:
            query = [(k, v) for k, v in (("from", first), ("to", last)) if v is not None]
            listed = await api.audits(query)
            screen.show(listed, audit_list)
            return Exit.DONE
        received = await api.audit(window)
        screen.show(received, audit_view)
        return Exit.DONE if received.value.in_order else Exit.ENDED_OTHERWISE

    run(work, json_only=json)


async def _audit_now(screen: Screen) -> Exit:
    async with open_reconciler() as reconciler:
        received = await reconciler.audit()
    screen.show(received, pass_view)
    result = received.value
    clean = result.complete and not result.malformed and not any(w.gaps for w in result.windows)
    return Exit.DONE if clean else Exit.ENDED_OTHERWISE


@command()
def incidents(
    status: Annotated[
        str | None, typer.Option(help="open or resolved; --all shows both.")
    ] = "open",
    everything: Annotated[
        bool, typer.Option("--all", help="Open and resolved, whatever --status says.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, max=200, help="Incidents a page.")] = None,
    cursor: Annotated[str | None, typer.Option(help="Go on after the page before.")] = None,
    json: JsonOnly = False,
) -> None:
    """List incidents, newest first."""
    single = {"status": None if everything else status, "limit": limit, "cursor": cursor}
    query = [(name, str(value)) for name, value in single.items() if value is not None]

    async def work(api: Api, screen: Screen) -> Exit:
        received = await api.incidents(query)
        screen.show(received, incident_table)
        return Exit.DONE

    run(work, json_only=json)


@command()
def resolve(
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", help="The incident's ID.")],
    note: Annotated[str, typer.Option(help="What was found and done.")],
    json: JsonOnly = False,
) -> None:
    """Mark an incident as resolved; needs an operator's key."""

    async def work(api: Api, screen: Screen) -> Exit:
        if not note.strip():
            raise Misused("--note must say what was found and done.")
        received = await api.resolve(incident, note)
        screen.say(f"incident {received.value.id} is {received.value.status}")
        screen.show_raw(received)
        return Exit.DONE

    run(work, json_only=json)
