"""The functions of the stack and the messages each one is pushed: the one table of targets."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Target:
    """One function; `topic` names what is pushed to it, if anything is."""

    name: str
    topic: str | None = None
    topic_variable: str | None = None
    """The environment variable that tells every function the topic's name."""

    @property
    def subscription(self) -> str:
        """The ID of the subscription that feeds this target."""
        return f"{self.topic}-push"


API = Target(name="api")
EVALUATE = Target(
    name="evaluate", topic="empanel-evaluate", topic_variable="EMPANEL_EVALUATE_TOPIC"
)
RECONCILE = Target(name="reconcile")

TARGETS = (API, EVALUATE, RECONCILE)
PUSHED = tuple(target for target in TARGETS if target.topic is not None)

DEAD_LETTER_TOPIC = "empanel-dead-letter"
BUCKET = "empanel-local"
PROJECT = "empanel-local"
TENANT = "local"


def topic_environment() -> dict[str, str]:
    """The topic names, as the functions' environment."""
    return {
        target.topic_variable: target.topic
        for target in PUSHED
        if target.topic_variable is not None and target.topic is not None
    }


def topic_names() -> dict[str, str]:
    """The topic that feeds each pushed target."""
    return {target.name: target.topic for target in PUSHED if target.topic is not None}


def push_account(project: str) -> str:
    """The service account that pushes messages."""
    return f"empanel-push@{project}.iam.gserviceaccount.com"


def scheduler_account(project: str) -> str:
    """The service account that calls `reconcile`."""
    return f"empanel-scheduler@{project}.iam.gserviceaccount.com"
