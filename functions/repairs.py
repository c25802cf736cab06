"""Repairs on record: what was lost, brought back, and why; the audit of the window shows them."""

from datetime import datetime
from typing import Any

from functions.core.jobs import Job
from functions.core.notifications import Notification
from functions.core.ports import Create
from functions.core.versions import REPAIR
from functions.services import Services


def repair_record(services: Services, job: Job, kind: str, reason: str, at: datetime) -> Create:
    """Return the write that puts a repair of a job's current run on record.

    It goes into the repair's own commit where there is one, so that of two repairs at once only the
    one that won is recorded.
    """
    data: dict[str, Any] = {
        "tenant": job.tenant,
        "window": job.run_window,
        "job": job.id,
        "run": job.run,
        "expire_at": job.expire_at,
    }
    return _create(services, data, kind, reason, at)


def announced_record(
    services: Services, notification: Notification, reason: str, at: datetime
) -> Create:
    """Return the write that puts on record that a notification was announced again."""
    data: dict[str, Any] = {
        "tenant": notification.tenant,
        "window": notification.window,
        "job": notification.job,
        "run": notification.run,
        "expire_at": notification.expire_at,
    }
    return _create(services, data, "announced", reason, at)


def _create(
    services: Services, data: dict[str, Any], kind: str, reason: str, at: datetime
) -> Create:
    document = {"v": REPAIR.written, **data, "kind": kind, "reason": reason, "at": at}
    return Create(path=f"repairs/{services.new_id()}", data=document)
