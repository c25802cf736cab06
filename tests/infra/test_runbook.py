"""The runbook against the alarms and the incidents that there are."""

import re
from pathlib import Path

from functions.incidents import ESCALATION_HOURS

INFRA = Path(__file__).resolve().parents[2] / "infra"
RUNBOOK = (INFRA / "RUNBOOK.md").read_text(encoding="utf-8")
ALARMS = (INFRA / "alarms.tf").read_text(encoding="utf-8")
KINDS = "Incidents by kind"  # what comes before it is alarms, what comes after is done on purpose
ON_PURPOSE = ["Roll back", "Rotate", "Backup and restore", "Region loss", "Save money"]


def anchor(heading: str) -> str:
    """Return the name that a link to a heading ends in, as GitHub and GitLab make it."""
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def parts(text: str, level: int) -> dict[str, str]:
    """Return what stands under each heading of a level."""
    found = re.split(rf"^{'#' * level} (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


SECTIONS = parts(RUNBOOK, 2)
HEADINGS = list(SECTIONS)


def alarm_names() -> set[str]:
    """Return the last part of each alarm's link: keys of the tables, and those that stand alone."""
    alone = re.findall(r'runbook = "([a-z-]+)"', ALARMS)
    tables = re.findall(r"^ {4,6}([a-z-]+) += \{\n +title", ALARMS, re.MULTILINE)
    return {*alone, *tables}


def test_each_alarm_has_its_section_and_each_section_its_alarm() -> None:
    """The link of an alarm leads somewhere, and nothing is described that never rings."""
    before = HEADINGS[: HEADINGS.index(KINDS)]
    assert len(before) >= 14
    assert {anchor(heading) for heading in before} == alarm_names()


def test_each_kind_of_incident_has_its_section_below_its_alarm() -> None:
    """Headings are the kinds of the code, each below the alarm that it rings."""
    rung = {
        kind: alarm
        for alarm, kinds in re.findall(
            r"^ {4}([a-z-]+) = \{\n.*\n.*\n +kinds +=(.*)$", ALARMS, re.MULTILINE
        )
        for kind in re.findall(r'"(\w+)"', kinds)
    }
    found = {
        heading.strip("`"): anchor(section)
        for section, text in SECTIONS.items()
        for heading in parts(text, 3)
        if heading.startswith("`")
    }
    assert set(found) == set(ESCALATION_HOURS)
    assert found == rung


def test_the_table_of_kinds_has_the_hours_of_the_code() -> None:
    """Whoever is on call reads the hours here."""
    rows = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\) \| (\d+) \|", SECTIONS[KINDS], re.MULTILINE)
    assert {kind: float(hours) for kind, _, hours in rows} == ESCALATION_HOURS
    assert all(kind == link for kind, link, _ in rows)


def test_each_section_says_what_to_look_at_what_to_do_and_when_it_is_over() -> None:
    """No alarm and no incident is a mere description."""
    for heading in HEADINGS[: HEADINGS.index(KINDS)]:
        text = SECTIONS[heading]
        kinds = {name: body for name, body in parts(text, 3).items() if name.startswith("`")}
        for name, body in (kinds or {heading: text}).items():
            asked = [body.find(f"- {word}") for word in ("Look:", "Do:", "Over when:")]
            assert -1 < asked[0] < asked[1] < asked[2], name


def test_what_is_done_on_purpose_is_there() -> None:
    """Roll back, rotate, restore, a lost region, cost: each has its section."""
    assert HEADINGS[HEADINGS.index(KINDS) + 1 :] == ON_PURPOSE


def test_links_within_lead_somewhere() -> None:
    """Also those that no alarm uses, here and in the deployment's page; files of links exist."""
    here = {anchor(heading) for level in (2, 3) for heading in parts(RUNBOOK, level)}
    here |= {anchor(h) for text in SECTIONS.values() for h in parts(text, 3)}
    assert not {link for link in re.findall(r"\]\(#([^)]+)\)", RUNBOOK) if link not in here}
    for page in ("RUNBOOK.md", "README.md", "COST.md"):
        text = (INFRA / page).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", text):
            assert (INFRA / link).is_file(), f"{page}: {link}"


def test_decisions_are_dated_and_give_alternatives() -> None:
    """Those that the deployment rests on say what was chosen, why, and what else there was."""
    names = {
        "acknowledgement-table",
        "lease-and-time-chain",
        "create-only-terminals",
        "tenant-scoped-answers",
        "push-not-pull-worker-pools",
        "delayed-retry-by-the-minute-tick",
    }
    pages = {path.stem: path.read_text(encoding="utf-8") for path in INFRA.glob("decisions/*.md")}
    for stem, text in pages.items():
        date = re.match(r"\d{4}-\d\d-\d\d", stem)
        assert date is not None
        assert f"\n{date[0]}\n" in text, stem
    needed = ("**Decision.**", "**Why.**", "**Consequences.**", "**Alternatives.**")
    by_name = {stem[11:]: text for stem, text in pages.items()}
    assert not [(n, word) for n in names for word in needed if word not in by_name[n]]
    asked = re.findall(r"`(2026-[a-z0-9-]+)\.md`", "\n".join(pages.values()))
    assert set(asked) <= set(pages)
