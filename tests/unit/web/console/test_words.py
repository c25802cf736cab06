"""The console's words: nothing that the code can say is shown as its bare name."""

from functions.core.audits import LISTS
from functions.core.jobs import JobState, SeatState
from functions.core.retries import ANSWER_CODES, PERMANENT_CODES, RECOVERABLE_CODES
from functions.incidents import ESCALATION_HOURS, OPEN, RESOLVED
from functions.web.console import words

OURS = {
    *("attempts_exhausted", "invalid_response", "budget_exhausted", "deadline_exceeded"),
    *("canceled", "interrupted", "output_missing", "output_damaged"),
}


def test_every_code_of_seats_and_attempts_has_its_meaning() -> None:
    """Those of providers and those of our own, and no other."""
    assert words.MEANINGS.keys() == PERMANENT_CODES | RECOVERABLE_CODES | ANSWER_CODES | OURS


def test_every_list_of_an_audit_and_kind_of_incident_has_a_title() -> None:
    """A new kind needs its words before anybody meets it."""
    assert words.KINDS.keys() == {*LISTS, *ESCALATION_HOURS}


def test_every_state_has_its_sign() -> None:
    """Colour is never the only difference."""
    assert words.MARKS.keys() == {*JobState, *SeatState, OPEN, RESOLVED}


def test_an_unknown_word_is_shown_as_it_is() -> None:
    """A newer release's code is better told bare than not at all."""
    assert [word("newer") for word in (words.meaning, words.kind)] == ["newer", "newer"]
    assert words.mark("newer") == "·"


def test_costs_and_numbers_are_told_without_false_precision() -> None:
    """An unknown cost is never zero, and a small one is never rounded to it."""
    costs = {None: "unknown", 0.0: "$0.00", 1e-7: "under $0.000001", 0.000123: "$0.000123"}
    assert {usd: words.cost(usd) for usd in costs} == costs
    numbers = {None: "-", 0: "0", 1_234_567: "1,234,567", 61.25: "61.25"}
    assert {value: words.number(value) for value in numbers} == numbers
