"""Queries of lists: what no job can have is refused, and what one can have is found."""

import pytest

from tests.faults.world import World
from tests.unit.web.door import Door

OWNER = "\U0001f600" * 128
KEY, TEXT = "k" * 63, "\U0001f600" * 255


@pytest.mark.parametrize(
    ("name", "text"), [("owner", OWNER + "x"), ("label", f"{KEY}:{TEXT}x"), ("owner", "x" * 5000)]
)
async def test_a_text_longer_than_any_jobs_is_refused(name: str, text: str) -> None:
    """400: Firestore itself refuses to look for more than it indexes of a text."""
    answer = await Door(World()).call("GET", "/v1/jobs", params={name: text})
    assert answer.status_code == 400
    assert name in answer.json()["detail"]


async def test_the_longest_owner_and_label_are_found() -> None:
    """What a job may have can be asked for."""
    door = Door(World())
    body = {
        "facts": {"a": 1},
        "rubric": {"instructions": "Score."},
        "seats": [{"provider": "fake", "model": "m0"}],
        "owner": OWNER,
        "labels": {KEY: TEXT},
    }
    job = (await door.call("POST", "/v1/jobs", json=body)).json()["id"]
    for wanted in ({"owner": OWNER}, {"label": f"{KEY}:{TEXT}"}):
        found = (await door.call("GET", "/v1/jobs", params=wanted)).json()["jobs"]
        assert [each["id"] for each in found] == [job]
