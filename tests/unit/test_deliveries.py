"""How a notification moves from try to try."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from functions.core.deliveries import (
    CLAIM_SECONDS,
    MAX_TRIES,
    Made,
    after_try,
    asked_again,
    claimed,
    is_due,
    next_look,
    wait_seconds,
    was_lost,
)
from functions.core.notifications import KEPT_DELIVERIES, Notification, NotificationState
from functions.core.webhooks import WebhookAnswer, WebhookOutcome
from tests.unit.records import at

PENDING, DELIVERED = NotificationState.PENDING, NotificationState.DELIVERED
FAILED, GONE = NotificationState.FAILED, NotificationState.GONE


def notification(**fields: Any) -> Notification:
    values: dict[str, Any] = {
        "tenant": "tenant",
        "window": "2026-11-29T12",
        "job": "job",
        "run": 1,
        "decision": "dec",
        "owner": "owner",
        "created_at": at(0),
        "expire_at": at(86_400),
        "body": "{}",
        "body_sha256": "s",
        "url": "https://example.com/",
        "next_at": at(60),
    }
    return Notification(**values | fields)


def made(outcome: WebhookOutcome | None, *, event: bool = True, **fields: Any) -> Made:
    answer = None if outcome is None else WebhookAnswer(outcome=outcome, reason="r", **fields)
    return Made(webhook=answer, event_published=event)


def tried(before: Notification, made: Made, seconds: float = 1.0) -> Notification:
    claim = claimed(before, at(seconds))
    after = after_try(claim, claim.deliveries[-1].number, made, at(seconds + 1), 0.0)
    assert after is not None
    return after


@pytest.mark.parametrize(
    ("tries", "hint", "jitter", "seconds"),
    [
        (1, None, 0.0, 5),
        (2, None, 0.0, 300),
        (3, None, 0.0, 1800),
        (4, None, 0.0, 7200),
        (5, None, 0.0, 18_000),
        (6, None, 0.0, 36_000),
        (7, None, 0.0, 50_400),
        (8, None, 0.0, 72_000),
        (9, None, 0.0, 86_400),
        (1, 2.0, 0.0, 5),
        (1, 120.0, 0.0, 120),
        (1, 1e9, 0.0, 86_400),
        (2, None, 0.5, 315),
    ],
)
def test_the_schedule(tries: int, hint: float | None, jitter: float, seconds: float) -> None:
    """The waits grow from 5 s to a day; a hint makes one longer, up to a day, never shorter."""
    assert wait_seconds(tries, hint, jitter) == pytest.approx(seconds)


def test_the_schedule_is_finite() -> None:
    """After the last try the notification has failed and has no timer."""
    found, seconds, tries = notification(), 0.0, 0
    while found.state is PENDING:
        assert found.due_at is None or is_due(found, found.due_at)
        seconds = (found.due_at - at(0)).total_seconds() if found.due_at else 0.0
        found = tried(found, made(WebhookOutcome.RETRYABLE, http_status=500), seconds)
        tries += 1
    assert (found.state, tries, found.tries) == (FAILED, MAX_TRIES, MAX_TRIES)
    assert (found.next_at, found.due_at, found.delivered) == (None, None, False)
    assert [record.number for record in found.deliveries] == list(range(1, MAX_TRIES + 1))
    assert seconds > 3 * 86_400


@pytest.mark.parametrize(
    ("url", "result", "state", "delivered"),
    [
        ("u", made(WebhookOutcome.DELIVERED), DELIVERED, True),
        ("u", made(WebhookOutcome.GONE), GONE, False),
        ("u", made(WebhookOutcome.BLOCKED), FAILED, False),
        ("u", made(WebhookOutcome.RETRYABLE), PENDING, False),
        ("u", made(WebhookOutcome.DELIVERED, event=False), PENDING, False),
        ("u", made(WebhookOutcome.GONE, event=False), PENDING, False),
        (None, made(None), DELIVERED, True),
        (None, made(None, event=False), PENDING, False),
    ],
)
def test_how_a_try_ends(
    url: str | None, result: Made, state: NotificationState, delivered: bool
) -> None:
    """Both parts have to end; what may be tried again keeps a timer, all else has none."""
    after = tried(notification(url=url), result)
    assert (after.state, after.delivered) == (state, delivered)
    assert (after.next_at is not None) == (state is PENDING)


def test_a_part_that_has_ended_is_not_done_again() -> None:
    """An event that could not be published is tried again without a second webhook."""
    after = tried(notification(), made(WebhookOutcome.DELIVERED, event=False))
    assert (after.webhook, after.event_published) == ("delivered", False)
    again = tried(after, made(None), 10.0)
    assert (again.state, again.delivered) == (DELIVERED, True)


def test_a_claim_holds_others_back_and_names_what_died() -> None:
    """Nobody else tries while a claim holds; a try that never ended is `unknown` after the next."""
    first = claimed(notification(), at(1))
    assert not is_due(first, at(CLAIM_SECONDS))
    assert is_due(first, at(1 + CLAIM_SECONDS))
    assert was_lost(first)
    second = claimed(first, at(40))
    assert [record.outcome for record in second.deliveries] == ["unknown", "running"]
    assert after_try(second, 1, made(WebhookOutcome.DELIVERED), at(41), 0.0) is None


def test_the_log_keeps_the_last_tries() -> None:
    """The log is bounded however often an operator sends a notification again."""
    found = notification()
    for number in range(KEPT_DELIVERIES + 5):
        found = asked_again(tried(found, made(WebhookOutcome.GONE), number), at(number))
    assert len(found.deliveries) == KEPT_DELIVERIES
    assert found.deliveries[-1].number == KEPT_DELIVERIES + 5


def test_asked_again_starts_afresh_with_the_same_bytes() -> None:
    """Tries and timers begin again; ID and bytes stay, and so does that it had arrived."""
    ended = tried(notification(), made(WebhookOutcome.DELIVERED))
    again = asked_again(ended, at(100))
    assert (again.state, again.tries, again.due_at) == (PENDING, 0, None)
    assert (again.id, again.body, again.delivered) == (ended.id, ended.body, True)
    assert is_due(again, at(100))


@pytest.mark.parametrize(("waited", "seconds"), [(0, 60), (60, 60), (200, 200), (5000, 900)])
def test_a_backlog_is_not_announced_again_and_again(waited: float, seconds: float) -> None:
    """The next look comes after as long as it has waited, between one minute and fifteen."""
    assert next_look(notification(), at(waited)) == at(waited) + timedelta(seconds=seconds)


def test_a_due_retry_is_no_loss() -> None:
    """Only a notification that nobody tried, or whose sender died, counts as repaired."""
    assert was_lost(notification())
    assert not was_lost(replace(notification(), due_at=at(5)))
    assert not was_lost(tried(notification(), made(WebhookOutcome.RETRYABLE)))
