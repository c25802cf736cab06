"""F01 to F03 as a matrix: no way leads a webhook to an address inside.

| way | where it is refused |
|---|---|
| a literal address, in every spelling | here: 422 at submission, nothing is stored |
| a name that leads inside | `tests/contract/test_webhooks.py` |
| a name that turns to it | F01 in `test_f_cases.py` |
| a redirect | `tests/contract/test_webhooks.py` |
| what the receiver answers | F03 in `test_f_cases.py` |
"""

import pytest

from tests.faults.world import World
from tests.unit.web.door import Door

INSIDE = (
    "https://169.254.169.254/computeMetadata/v1/",
    "https://metadata.google.internal/computeMetadata/v1/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://0/",
    "https://0.0.0.0/",
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.0.1/",
    "https://100.64.0.1/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:169.254.169.254]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[2002:a9fe:a9fe::1]/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1%25eth0]/",
    "https://localhost/",
    "https://LOCALHOST./",
    "https://a.localhost/",
    "https://example.com@169.254.169.254/",
    "https://169.254.169.254#@example.com/",
    "https://example.com:22/",
    "https://example.com:8080/",
    "http://example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "//169.254.169.254/",
    "https:///hook",
    "https://exa\tmple.com/",
    "https://example.com\\@169.254.169.254/",
    "https://169。254。169。254/",
    "https://①②⑦.0.0.1/",
)  # fmt: skip


@pytest.mark.parametrize("url", INSIDE)
async def test_f01_f03_no_spelling_of_an_inner_address_is_accepted(url: str) -> None:
    """Refused with the place it stands at, for a job and for an estimate; nothing is on record."""
    world = World()
    door = Door(world)
    body = {
        "facts": {"a": 1},
        "rubric": {"instructions": "Score it."},
        "seats": [{"provider": "fake", "model": "m"}],
        "notify": {"url": url},
    }
    for path in ("/v1/jobs", "/v1/estimate"):
        answer = await door.call("POST", path, json=body)
        assert answer.status_code == 422, answer.text
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/notify/url"]
    assert not [path for path in world.ledger.stored() if not path.startswith("api_keys/")]
    assert world.objects.names() == []
