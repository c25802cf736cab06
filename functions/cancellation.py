"""Cancel: the run ends now, as it stands; its calls are cut within two seconds, everywhere."""

from functions.core.documents import from_snapshot, job_path
from functions.core.errors import LedgerUnavailable
from functions.core.jobs import Job, JobState
from functions.operator_log import log_entry
from functions.services import Services
from functions.settlement import stop_run


async def cancel(services: Services, job: Job, *, by: str) -> Job:
    """Close the job's run as canceled, unless it has ended; return the job as it is then.

    `by` is the name of who asked for it.

    Raises:
        LedgerUnavailable: it is not certain that the run is closed; ask again.
    """
    if job.state.is_terminal:
        return job
    log = log_entry(services, tenant=job.tenant, who=by, what="cancel", job=job.id, run=job.run)
    await stop_run(services, job, JobState.CANCELED, "canceled by the caller", log)
    [found] = await services.ledger.get(job_path(job.id))
    current = from_snapshot(Job, found)
    if current is None:
        raise LedgerUnavailable(f"{found.path}: the job cannot be read back")
    return current
