"""The build file and the image: what can be run of them without Google Cloud and without Docker."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.infra.image import dockerfile

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD: Mapping[str, Any] = YAML(typ="safe").load(REPOSITORY / "cloudbuild.yaml")
STEPS: dict[str, Mapping[str, Any]] = {step["id"]: step for step in BUILD["steps"]}
GOOD = {"_REGION": "europe-west1", "_STATE_BUCKET": "p-terraform", "_VARIABLES": "small.tfvars"}


def run_step(name: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a step's script as Cloud Build does: a file, with the substitutions as environment."""
    script = folder / "step.sh"
    script.write_text(STEPS[name]["script"])
    path = f"{folder}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(script)],
        cwd=folder,
        env={"PATH": path, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_steps_come_in_their_order() -> None:
    """Nothing is built unchecked, nothing is applied unbuilt, and traffic comes last."""
    wanted = ["check", "check-infra", "build", "push", "hold", "apply", "smoke", "traffic"]
    assert list(STEPS) == ["substitutions", *wanted]
    waits = {name: step.get("waitFor") for name, step in STEPS.items() if "waitFor" in step}
    assert waits["build"] == ["check", "check-infra"]
    assert set(waits) == {"check", "check-infra", "build"}  # the others wait for all before them


def test_no_value_becomes_part_of_a_command() -> None:
    """Every step is a script that gets its values as environment, and none is given a secret."""
    assert all(set(step) <= {"id", "name", "script", "waitFor"} for step in STEPS.values())
    assert BUILD["options"]["automapSubstitutions"] is True
    assert "availableSecrets" not in BUILD
    assert "${" not in BUILD["steps"][0]["name"]


GCLOUD_READS = """
import sys
sys.path[:0] = [sys.argv[1] + "/lib", sys.argv[1] + "/lib/third_party"]
from googlecloudsdk.api_lib.cloudbuild import cloudbuild_util, config
messages = cloudbuild_util.GetMessagesModule()
build = config.LoadCloudbuildConfigFromPath("cloudbuild.yaml", messages, params={})
print(len(build.steps))
"""


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud_reads_the_build_file() -> None:
    """What submits the file takes it, every field of every step."""
    asked = ["gcloud", "info", "--format=value(installation.sdk_root, basic.python_location)"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    if len(told) != 2 or not (Path(told[0]) / "lib" / "googlecloudsdk").is_dir():
        pytest.skip("gcloud does not say where its own modules are")
    read = subprocess.run(
        [told[1], "-c", GCLOUD_READS, told[0]],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.stdout.strip() == str(len(STEPS)), read.stderr


@pytest.mark.parametrize("name", STEPS)
def test_scripts_can_be_parsed(name: str, tmp_path: Path) -> None:
    """A script with a syntax error would fail after the image has been built."""
    script = tmp_path / "script"
    script.write_text(STEPS[name]["script"])
    shell = "bash" if "bash" in STEPS[name]["script"].splitlines()[0] else "sh"
    assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_REGION", "europe; rm -rf /"),
        ("_STATE_BUCKET", ""),
        ("_VARIABLES", "../secrets.tfvars"),
        ("_VARIABLES", "absent.tfvars"),
        ("_VARIABLES", ""),
    ],
)
def test_a_wrong_substitution_stops_the_build_at_once(
    name: str, value: str, tmp_path: Path
) -> None:
    """The first step names what is wrong; with good values it lets the build go on."""
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra" / "small.tfvars").touch()
    assert run_step("substitutions", tmp_path, **GOOD).returncode == 0
    refused = run_step("substitutions", tmp_path, **(GOOD | {name: value}))
    assert refused.returncode != 0
    assert name in refused.stderr or value in refused.stderr


def test_what_serves_is_pinned_before_anything_changes(tmp_path: Path) -> None:
    """The revision with most traffic is pinned, and a service that is not there yet is left out."""
    gcloud = tmp_path / "gcloud"
    gcloud.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        "  *dead-letter*) ;;\n"
        '  *" list "*) echo there ;;\n'
        '  *describe*) echo \'{"status": {"traffic": [{"revisionName": "new", "tag": "candidate"}, '
        '{"revisionName": "old", "percent": 100}]}}\' ;;\n'
        "esac\n"
    )
    gcloud.chmod(0o755)
    assert run_step("hold", tmp_path, **GOOD).returncode == 0
    pins = YAML(typ="safe").load(tmp_path / "held.tfvars.json")["serving_revisions"]
    assert pins == dict.fromkeys(("api", "evaluate", "notify", "reconcile"), "old")


@pytest.mark.parametrize(
    ("health", "jobs", "good"), [(200, 401, True), (503, 401, False), (200, 200, False)]
)
def test_the_smoke_test_tells_a_bad_revision(
    health: int, jobs: int, good: bool, tmp_path: Path
) -> None:
    """Traffic follows only when the revision is healthy and lets nobody in without a key."""
    for name, text in {
        "gcloud": "echo token",
        "curl": f'case "$*" in *health*) printf {health} ;; *) printf {jobs} ;; esac',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "candidate_url").write_text("https://candidate---empanel-api.example")
    (tmp_path / "api_audience").write_text("https://empanel-api.p.internal")
    assert (run_step("smoke", tmp_path, **GOOD).returncode == 0) is good


def test_the_image_runs_as_nobody_in_particular() -> None:
    """A user of its own, hashes for every package, and no tool of development."""
    text = dockerfile()
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert "--require-hashes" in text
    assert "requirements-dev" not in text
