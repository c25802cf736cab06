"""The functions of the stack and the messages each one is pushed: the one table of targets."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Target:
    """One function."""

    name: str


@dataclass(frozen=True, kw_only=True)
class PushedTarget(Target):
    """A function that the messages of `topic` are pushed to."""

    topic: str
    topic_variable: str | None = None
    """The environment variable that tells every function the topic's name."""

    @property
    def subscription(self) -> str:
        """The ID of the subscription that feeds this target."""
        return f"{self.topic}-push"


API = Target(name="api")
EVALUATE = PushedTarget(
    name="evaluate", topic="empanel-evaluate", topic_variable="EMPANEL_EVALUATE_TOPIC"
)
NOTIFY = PushedTarget(name="notify", topic="empanel-notify", topic_variable="EMPANEL_NOTIFY_TOPIC")
RECONCILE = Target(name="reconcile")
DEAD_LETTER = PushedTarget(name="dead_letter", topic="empanel-dead-letter")

TARGETS = (API, EVALUATE, NOTIFY, RECONCILE, DEAD_LETTER)
PUSHED = (EVALUATE, NOTIFY, DEAD_LETTER)

EVENTS_TOPIC = "empanel-events"  # for whoever wants to know that jobs end; nobody does at first
BUCKET = "empanel-local"
PROJECT = "empanel-local"
TENANT = "local"


def topic_environment() -> dict[str, str]:
    """The topic names, as the functions' environment."""
    pushed = {
        target.topic_variable: target.topic
        for target in PUSHED
        if target.topic_variable is not None
    }
    return {**pushed, "EMPANEL_EVENTS_TOPIC": EVENTS_TOPIC}


def topic_names() -> dict[str, str]:
    """The topic that feeds each pushed target, and the events' topic."""
    pushed = {target.name: target.topic for target in PUSHED}
    return {**pushed, "events": EVENTS_TOPIC}


def push_account(project: str) -> str:
    """The service account that pushes messages."""
    return f"empanel-push@{project}.iam.gserviceaccount.com"


def scheduler_account(project: str) -> str:
    """The service account that calls `reconcile`."""
    return f"empanel-scheduler@{project}.iam.gserviceaccount.com"
