"""The Terraform configuration against the code, and against mistakes that its tests must find.

What runs Terraform is the command in EMPANEL_TERRAFORM_CHECK, called with a folder; without one it
is Terraform itself, where it is installed and can get its provider.
"""

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from functions.config import TARGETS
from functions.incidents import ESCALATION_HOURS
from infra.local import targets
from tests.infra.indexes import Shape, read_declared

REPOSITORY = Path(__file__).resolve().parents[2]
INFRA = REPOSITORY / "infra"
IMAGE = "europe-west1-docker.pkg.dev/p/empanel/empanel@sha256:" + "0" * 64
OWN_CHECK = (
    "cd {} && terraform fmt -check -recursive && terraform init -backend=false -input=false && "
    "terraform validate && terraform test"
)

Check = Callable[[Path], "subprocess.CompletedProcess[str]"]


def terraform(name: str) -> str:
    return (INFRA / f"{name}.tf").read_text(encoding="utf-8")


def functions_source() -> str:
    return "\n".join(path.read_text() for path in (REPOSITORY / "functions").rglob("*.py"))


def logged_events() -> dict[str, list[set[str]]]:
    """Every event that the code logs, with the fields of each call."""
    events: dict[str, list[set[str]]] = {}
    for path in (REPOSITORY / "functions").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="telemetry")),
                    args=[ast.Constant(value=str(name))],
                    keywords=keywords,
                ):
                    events.setdefault(name, []).append({str(word.arg) for word in keywords})
    return events


def test_every_kind_of_incident_is_in_one_alarm() -> None:
    """An incident that rings nowhere is found by whoever looks, or by nobody."""
    kinds = re.findall(r'"(\w+)"', "".join(re.findall(r"kinds\s+= \[(.*?)\]", terraform("alarms"))))
    assert sorted(kinds) == sorted(ESCALATION_HOURS)


def test_metrics_count_events_that_the_code_logs() -> None:
    """An event that is renamed, or that lacks a label's field, leaves its alarm silent for ever."""
    logged = logged_events()
    metrics = re.findall(r"events = \[(.*?)\], labels = \[(.*?)\]", terraform("metrics"))
    assert len(metrics) >= 9
    for events, labels in metrics:
        wanted = set(re.findall(r'"(\w+)"', labels))
        for event in re.findall(r'"([^"]+)"', events):
            assert event in logged
            assert all(wanted <= fields for fields in logged[event]), event


def test_the_services_are_the_targets_of_the_code() -> None:
    """A target without a service is code that never runs."""
    names = re.findall(r"^    (\w+) = \{\n      publishes", terraform("locals"), re.MULTILINE)
    assert sorted(names) == sorted(TARGETS)


def test_settings_are_variables_that_the_code_reads() -> None:
    """A misspelt variable would leave its default in force, silently."""
    source = functions_source()
    names = set(re.findall(r"\bEMPANEL_[A-Z_]+\b", terraform("run")))
    assert len(names) > 15
    assert not sorted(name for name in names if f'"{name}"' not in source)


def test_the_local_stack_uses_the_same_topics_and_subscriptions() -> None:
    """What is tried locally is what is deployed."""
    pubsub = terraform("pubsub")
    deployed = set(
        re.findall(r"for_each   = toset\(\[(.*?)\]\)", pubsub)[0].replace('"', "").split(", ")
    )
    assert deployed == {name.removeprefix("empanel-") for name in targets.topic_names().values()}


@pytest.fixture(scope="module")
def check() -> Check:
    """Run every check of Terraform's own on a folder."""
    command = os.environ.get("EMPANEL_TERRAFORM_CHECK")
    if command is None:
        pytest.skip("EMPANEL_TERRAFORM_CHECK names no command (see infra/README.md)")
    shell = OWN_CHECK if command == "terraform" else f"{command} {{}}"

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["sh", "-c", shell.format(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        done.stdout = re.sub(r"\x1b\[[0-9;]*m|[│╷╵]", "", done.stdout + done.stderr)
        done.stdout = re.sub(r"\s+", " ", done.stdout)
        return done

    return run


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the configuration, to make mistakes in."""
    folder = tmp_path / "infra"
    shutil.copytree(INFRA, folder, ignore=shutil.ignore_patterns(".terraform*", "local", "*.md"))
    return folder


def _change(folder: Path, file: str, before: str, after: str) -> None:
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert before in text, f"{before!r} is not in {file}: the mistake cannot be made"
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    subprocess.run(["terraform", "fmt", str(path)], check=True, capture_output=True)


# Each mistake, and what must be said of it. All are made at once: Terraform goes on after a failed
# assertion, and each has its own text.
MISTAKES = (
    (
        "pubsub.tf",
        "= var.ack_deadline_seconds #",
        "= 300 #",
        "The acknowledgement deadline is 600 s.",
    ),
    ("pubsub.tf", 'ttl = ""', 'ttl = "2678400s"', "Subscriptions never expire."),
    (
        "pubsub.tf",
        "audience              = local.audiences[each.key]",
        'audience              = local.audiences["api"]',
        "A push token names the audience of its service",
    ),
    (
        "pubsub.tf",
        '.uri}/"',
        '.uri}/push"',
        "A subscription pushes to the root of its own service.",
    ),
    (
        "pubsub.tf",
        "roles/iam.serviceAccountTokenCreator",
        "roles/iam.serviceAccountUser",
        "Pub/Sub's account may make tokens of the push account.",
    ),
    (
        "pubsub.tf",
        'role   = "roles/pubsub.publisher"',
        'role   = "roles/pubsub.viewer"',
        "Pub/Sub's account may publish dead letters.",
    ),
    (
        "pubsub.tf",
        'role         = "roles/pubsub.subscriber"',
        'role         = "roles/pubsub.viewer"',
        "Pub/Sub's account may take dead letters out",
    ),
    (
        "pubsub.tf",
        "most_deliveries = 100",
        "most_deliveries = 5",
        "After 100 deliveries a message goes to the dead-letter topic.",
    ),
    (
        "run.tf",
        '"INGRESS_TRAFFIC_INTERNAL_ONLY"',
        '"INGRESS_TRAFFIC_ALL"',
        "Only the API can be reached from outside.",
    ),
    (
        "run.tf",
        'invoker_iam_disabled = each.key == "api" &&',
        'invoker_iam_disabled = each.key != "" &&',
        "A pushed service without Cloud Run's guard",
    ),
    ("run.tf", "= var.concurrency\n", "= 1\n", "Concurrency is 80."),
    (
        "run.tf",
        "cpu_idle          = true",
        "cpu_idle          = false",
        "Idle instances are not billed.",
    ),
    (
        "run.tf",
        "{ FUNCTION_TARGET = target }",
        '{ FUNCTION_TARGET = "api" }',
        "Each service is told its own target.",
    ),
    (
        "locals.tf",
        "= floor(var.concurrency * 0.75)\n",
        "= 64\n",
        "Waits and streams never fill an instance.",
    ),
    (
        "locals.tf",
        'publishes = ["events"]',
        'publishes = ["events", "evaluate"]',
        "A service publishes to the topics that its code publishes to",
    ),
    (
        "accounts.tf",
        '"datastore.entities.create",',
        '"datastore.entities.create",\n    "datastore.entities.delete",',
        "No service deletes documents",
    ),
    (
        "secrets.tf",
        "[for target, service in local.services : target if service.keys]",
        "[for target, service in local.services : target]",
        "Provider keys are for api and evaluate",
    ),
    (
        "secrets.tf",
        'own_readers = toset(["empanel-webhook-secrets", "empanel-tenants"])',
        'own_readers = toset(["empanel-webhook-secrets"])',
        "The tenants' file is for the API's account alone.",
    ),
    (
        "run.tf",
        'EMPANEL_API_AUDIENCE = local.audiences["api"]',
        'EMPANEL_API_AUDIENCE = local.audiences["evaluate"]',
        "With accounts the API expects the audience it is known by",
    ),
    (
        "run.tf",
        'mount_path = "/etc/empanel-tenants"',
        'mount_path = "/etc/empanel"',
        "Each file is mounted, in a folder of its own",
    ),
    (
        "storage.tf",
        "age = var.retention_days + 1",
        "age = var.retention_days - 1",
        "No object is deleted before its retention is over.",
    ),
    (
        "logs.tf",
        " AND severity<WARNING AND httpRequest.status<400",
        "",
        "Only Cloud Run's lines about good requests are left out of the logs.",
    ),
    (
        "alarms.tf",
        'kinds    = ["aged_gap"]',
        'kinds    = ["gap"]',
        "The alarm for aged gaps counts aged gaps.",
    ),
    (
        "firestore.tf",
        "for_each = try(each.value.ttl, false) ? [true] : []",
        "for_each = [true]",
        "Time to live is on expire_at and on nothing else.",
    ),
)


def test_mistakes_in_values_are_found(check: Check, copy: Path) -> None:
    """Each of these is valid Terraform, and would fail silently or cost money: B07, B09."""
    for file, before, after, _ in MISTAKES:
        _change(copy, file, before, after)
    done = check(copy)
    assert done.returncode != 0
    said = done.stdout
    assert not [message for *_, message in MISTAKES if message and message not in said], said


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        (
            "run.tf",
            "max_instance_request_concurrency =",
            "max_concurrency =",
            "Unsupported argument",
        ),
        ("run.tf", "INGRESS_TRAFFIC_INTERNAL_ONLY", "INTERNAL_ONLY", "INTERNAL_ONLY"),
        pytest.param(
            *("variables.tf", "default     = 570", "default     = 598", "handler_deadline_seconds"),
            marks=pytest.mark.long,  # twelve seconds of Terraform each
        ),
        pytest.param(
            *("variables.tf", "default     = 600", "default     = 500", "handler_deadline_seconds"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_mistakes_in_words_are_found(
    check: Check, copy: Path, file: str, before: str, after: str, message: str
) -> None:
    """A word that does not exist, or a time chain out of order (E01), ends the check."""
    _change(copy, file, before, after)
    done = check(copy)
    assert done.returncode != 0
    assert message in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "agent_makes_push_tokens",
        pytest.param("agent_publishes_dead_letters", marks=pytest.mark.long),
        pytest.param("agent_takes_dead_letters", marks=pytest.mark.long),
    ],
)
def test_b07_a_missing_grant_of_dead_letters_is_found(check: Check, copy: Path, name: str) -> None:
    """Without one of the three nothing is forwarded, in silence: the one left out is named."""
    text = (copy / "pubsub.tf").read_text(encoding="utf-8")
    [block] = re.findall(rf'^resource "\w+" "{name}" \{{\n.*?^\}}\n', text, re.M | re.S)
    _change(copy, "pubsub.tf", block, "")
    done = check(copy)
    assert done.returncode != 0
    assert f'"{name}" has not been declared' in done.stdout


@pytest.mark.long
def test_b07_dead_letters_that_nobody_takes_are_found(check: Check, copy: Path) -> None:
    """A subscription whose letters may not leave; a topic of dead letters that nobody reads."""
    takes = '[for target in keys(local.pushed_topics) : target if target != "dead_letter"]'
    _change(copy, "pubsub.tf", takes, '["evaluate"]')
    _change(copy, "pubsub.tf", 'dead_letter = "dead-letter" }', 'dead_letter = "events" }')
    done = check(copy)
    assert done.returncode != 0
    assert "may take dead letters out of every subscription" in done.stdout
    assert "The dead-letter topic has a subscription, or dead letters are lost." in done.stdout


def test_the_example_variables_make_a_plan(check: Check, copy: Path) -> None:
    """Both examples pass every validation."""
    shutil.rmtree(copy / "tests")
    (copy / "tests").mkdir()
    for example in ("small", "production"):
        values = (copy / f"{example}.tfvars").read_text()
        (copy / "tests" / f"{example}.tftest.hcl").write_text(
            f'mock_provider "google" {{}}\n\nvariables {{\n  image = "{IMAGE}"\n{values}}}\n\n'
            'run "plan" {\n  command = plan\n}\n'
        )
    subprocess.run(["terraform", "fmt", str(copy / "tests")], check=True, capture_output=True)
    done = check(copy)
    assert done.returncode == 0, done.stdout
    assert "2 passed, 0 failed" in done.stdout


def test_a_missing_index_is_found(tmp_path: Path) -> None:
    """Without the index of the repair's timer, its query has no answer."""
    declared = json.loads((INFRA / "firestore.indexes.json").read_text())
    timer = Shape(collection="jobs", equal=frozenset({"shard"}), order="check_at")
    assert read_declared().used_by(timer)
    declared["indexes"] = [
        index for index in declared["indexes"] if index["fields"][-1]["fieldPath"] != "check_at"
    ]
    (tmp_path / "indexes.json").write_text(json.dumps(declared))
    assert read_declared(tmp_path / "indexes.json").used_by(timer) is None
