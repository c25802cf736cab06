"""The table of drills."""

from functions.drill.holders import killed_after_answer, killed_evaluate, late_result, two_holders
from functions.drill.injected import Drill
from functions.drill.messages import (
    duplicate_deliveries,
    lost_dispatch,
    lost_notification,
    lost_notification_and_upload,
    lost_upload,
)
from functions.drill.routes import two_routes

DRILLS = (
    Drill(
        name="lost-dispatch",
        injects="the message of an accepted job is dropped",
        finds="repair dispatches it again; the job succeeds with one attempt",
        inject=lost_dispatch,
    ),
    Drill(
        name="lost-notification",
        injects="the announcement of a run's end is dropped",
        finds="the audit lists it as undelivered; repair announces it; it is delivered",
        inject=lost_notification,
    ),
    Drill(
        name="lost-upload",
        injects="one of two outputs is deleted after its run has succeeded",
        finds="the audit lists it; an incident and an incomplete report stay",
        inject=lost_upload,
    ),
    Drill(
        name="lost-notification-and-upload",
        injects="a run's announcement is dropped and its output is deleted",
        finds="the notification is repaired; the output stays missing, with an incident",
        inject=lost_notification_and_upload,
    ),
    Drill(
        name="duplicate-deliveries",
        injects="each message is delivered five times more, and again after the end",
        finds="one attempt a seat, one terminal record, nothing to repair",
        inject=duplicate_deliveries,
    ),
    Drill(
        name="two-routes",
        injects="two consumers act on one decision at once, and again after a replay",
        finds="one holds the action for ever; both runs are counted",
        inject=two_routes,
    ),
    Drill(
        name="two-holders",
        injects="two workers and the deployment reach for one seat at once",
        finds="one attempt, one output, nothing to repair",
        inject=two_holders,
        local=True,
    ),
    Drill(
        name="killed-after-answer",
        injects="a worker is killed between its provider's answer and the upload",
        finds="one attempt stays unknown; repair wakes the seat; it is bought once more",
        inject=killed_after_answer,
        local=True,
    ),
    Drill(
        name="late-result",
        injects="a late failure and a late answer reach a seat that has succeeded meanwhile",
        finds="records and outputs stay as they are; the overtaken attempts are unknown",
        inject=late_result,
        local=True,
    ),
    Drill(
        name="killed-evaluate",
        injects="the stack's evaluate processes are killed with calls in flight",
        finds="every seat succeeds; what was in flight is on record as unknown",
        inject=killed_evaluate,
        local=True,
    ),
)
BY_NAME = {drill.name: drill for drill in DRILLS}
