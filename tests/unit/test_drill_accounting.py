"""Accounting for a drill: what was promised against what the books say, nothing taken on trust."""

from dataclasses import replace
from typing import Any

from functions.drill.accounting import Books, Gap, Incident, Promise, account

JOB, WINDOW = "job_a", "2026-11-29T12"
LOST = Gap(kind="missing_output", name=f"{JOB} seat-0")
UNTOLD = Gap(kind="undelivered_notifications", name="dec_a.1")
PROMISE = Promise(states={JOB: "succeeded"}, attempts={JOB: {"succeeded": 1}})


def report(**changes: Any) -> dict[str, Any]:
    """An audit's report of a window with one succeeded run."""
    return {
        "audited_at": "2026-11-29T12:30:00Z",
        "complete": True,
        "population": 1,
        "counts": {"succeeded": 1, "failed": 0},
        "errors": [],
        **changes,
    }


def books(**changes: Any) -> Books:
    """Books in which one job has succeeded and all is in order."""
    return replace(
        Books(
            windows={WINDOW: report()},
            jobs={JOB: {"state": "succeeded", "window": WINDOW}},
            attempts={JOB: ["succeeded"]},
            gaps=frozenset(),
            repairs=[],
            incidents=[],
            reports={JOB: True},
            notifications={"dec_a.1": "delivered"},
        ),
        **changes,
    )


def broken(promise: Promise, last: Books, first: Books | None = None) -> list[str]:
    """The promises that the books do not keep."""
    return [check.promise for check in account(promise, first or last, last) if not check.kept]


def incident(status: str) -> dict[str, Any]:
    """The incident of the lost output."""
    return {"id": "inc_1", "kind": "output_missing", "job_id": JOB, "status": status}


def test_books_in_order_keep_every_promise() -> None:
    """Nothing was lost, and the books say so."""
    assert broken(PROMISE, books()) == []


def test_an_audit_that_did_not_look_at_everything_proves_nothing() -> None:
    """An incomplete report is no account, whatever its lists say, before repair or after."""
    partial = books(windows={WINDOW: report(complete=False, errors=["403"])})
    assert broken(PROMISE, books(), partial) == [
        f"the audit of {WINDOW} before repair looked at everything"
    ]
    assert broken(PROMISE, partial, books()) == [
        f"the audit of {WINDOW} after repair looked at everything"
    ]


def test_counts_must_add_up_to_the_accepted_runs() -> None:
    """A run that no state counts, or a window that holds fewer runs than were accepted, is told."""
    promise = f"the states in {WINDOW} after repair add up to the accepted runs"
    uncounted = books(windows={WINDOW: report(population=2)})
    assert broken(PROMISE, uncounted, books()) == [promise]
    too_few = books(windows={WINDOW: report(population=0, counts={"succeeded": 0})})
    assert broken(PROMISE, too_few, books()) == [promise]


def test_a_gap_that_was_not_promised_is_told() -> None:
    """The audit must list what the fault has lost and nothing else."""
    assert broken(PROMISE, books(gaps=frozenset({LOST}))) == [
        "the audit lists what is missing, and nothing else"
    ]


def test_a_gap_that_is_not_listed_is_told() -> None:
    """An audit that calls a window in order while an output is gone is the worst that can be."""
    promise = replace(
        PROMISE,
        left=frozenset({LOST}),
        incidents=frozenset({Incident(kind="output_missing", job=JOB)}),
        incomplete_reports=frozenset({JOB}),
    )
    assert broken(promise, books()) == [
        "the audit lists what is missing, and nothing else",
        "the open incidents are those of the fault",
        f"the report of {JOB} is complete only if no answer is missing",
    ]
    gap = frozenset({LOST})
    told = books(gaps=gap, incidents=[incident("open")], reports={JOB: False})
    assert broken(promise, told) == []
    assert broken(promise, replace(told, incidents=[incident("resolved")])) == [
        "the open incidents are those of the fault"
    ]


def test_a_lost_message_is_found_or_was_repaired_before_the_audit() -> None:
    """A repair after an audit that had not listed the loss does not excuse the audit."""
    promise = replace(
        PROMISE,
        found={JOB: frozenset({UNTOLD})},
        repairs={JOB: frozenset({"announced"})},
    )
    early = {"kind": "announced", "job_id": JOB, "at": "2026-11-29T12:29:59.5Z", "reason": ""}
    late = early | {"at": "2026-11-29T12:30:00.5Z"}
    assert broken(promise, books(repairs=[late]), books(gaps=frozenset({UNTOLD}))) == []
    assert broken(promise, books(repairs=[early]), books()) == []
    assert broken(promise, books(repairs=[late]), books()) == [
        "the audit finds undelivered_notifications dec_a.1, unless repair was faster"
    ]


def test_a_repair_that_is_not_on_record_is_told() -> None:
    """Work that came back without a record of it is not accounted for; one repair more is."""
    promise = replace(PROMISE, repairs={JOB: frozenset({"dispatched"})})
    other = {"kind": "woken", "job_id": JOB, "at": "2026-11-29T12:29:00Z", "reason": ""}
    assert broken(promise, books(repairs=[other])) == [f"repair 'dispatched' of {JOB} is on record"]
    assert broken(promise, books(repairs=[other, other | {"kind": "dispatched"}])) == []


def test_attempts_are_compared_but_for_the_providers_own_trouble() -> None:
    """One request more than promised is told; a rate limit on the way is not the fault's."""
    promise = f"the attempts of {JOB} are all on record, and no more"
    assert broken(PROMISE, books(attempts={JOB: ["retryable", "succeeded"]})) == []
    assert broken(PROMISE, books(attempts={JOB: ["succeeded", "succeeded"]})) == [promise]
    assert broken(PROMISE, books(attempts={JOB: ["unknown", "succeeded"]})) == [promise]
    assert broken(PROMISE, books(attempts={JOB: []})) == [promise]


def test_a_run_that_ends_otherwise_or_untold_is_told() -> None:
    """State and notification are part of every promise."""
    other = books(
        jobs={JOB: {"state": "expired", "window": WINDOW}}, notifications={"dec_a.1": "failed"}
    )
    assert broken(PROMISE, other) == [
        f"{JOB} ends succeeded",
        "notification dec_a.1 is delivered",
    ]
