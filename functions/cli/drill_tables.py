"""Drills and their accounts as text for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from functions.cli.tables import line, paragraphs, table


def drill_table(rows: Iterable[Mapping[str, Any]]) -> RenderableType:
    """The table of drills."""
    shown = (
        (row["drill"], row["injects"], row["finds"], "yes" if row["local"] else "no")
        for row in rows
    )
    return table(("drill", "injects", "must be found", "local only"), shown)


def drill_view(view: Mapping[str, Any]) -> Text:
    """One account: what was injected, found and repaired, and what stays open."""
    kept = view["accounted"]
    word, style = ("accounted for", "bold") if kept else ("NOT ACCOUNTED FOR", "bold red")
    lines = [
        line(f"\n{view['drill']}: {word}", style=style),
        line(f"  injected: {view['injected']}"),
    ]
    if view["error"]:
        lines.append(line(f"  error: {view['error']}", style="red"))
    lines += [line(f"  audited: {_window(window)}") for window in view["windows"]]
    lines += _part("found", view["found"])
    lines += _part("repaired", [_repair(repair) for repair in view["repaired"]])
    gaps, incidents = view["open"]["gaps"], view["open"]["incidents"]
    lines += _part("stays open", [*gaps, *(_incident(incident) for incident in incidents)])
    lines += _part("resolved", view["resolved"]) if view["resolved"] else []
    broken = [check for check in view["checks"] if not check["kept"]]
    lines.append(line(f"  promises: {len(view['checks']) - len(broken)} kept, {len(broken)} not"))
    lines += [line(f"    BROKEN: {c['promise']} ({c['seen']})", style="red") for c in broken]
    return paragraphs(lines)


def _part(title: str, items: Iterable[str]) -> list[Text]:
    listed = list(items)
    if not listed:
        return [line(f"  {title}: nothing")]
    return [line(f"  {title}:"), *(line(f"    {item}") for item in listed)]


def _window(window: Mapping[str, Any]) -> str:
    whole = "complete" if window["complete"] else "INCOMPLETE"
    return f"{window['window']}, {window['population']} accepted, {whole}"


def _repair(repair: Mapping[str, Any]) -> str:
    return f"{repair['kind']}: {repair['job_id']}, {repair['reason']}"


def _incident(incident: Mapping[str, Any]) -> str:
    return (
        f"incident {incident['id']}: {incident['kind']}, owner {incident['owner']}, "
        f"{incident['status']}"
    )
