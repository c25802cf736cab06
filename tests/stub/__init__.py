"""A stub provider: a real server process that speaks OpenAI Chat Completions and can misbehave.

Use it in a test; the process starts with the block and ends with it::

    async with StubProvider(latency_seconds=0.2) as stub:
        await stub.script(
            Rule(label="item-3", responses=(ScriptedResponse(status=429),)),
            Rule(every=5, always=ScriptedResponse(fault="never_answer")),
        )
        ...  # point the client at stub.base_url with the key stub.api_key
        await stub.wait_for(lambda stats: stats.totals.client_gone == 2)
        stats = await stub.stats()
        assert stats.labels["item-3"].requests == 2

Or run it by hand: ``python -m tests.stub --port 0 --latency-seconds 0.2 --script faults.json``.

Names. A request's **key** is a digest of model, messages and sampling parameters, so a repeated
question has the same key. Its **label** is the NAME in ``stub-key: NAME`` (also ``"stub-key":
"NAME"``, so that a field of a job's facts will do) in a user message. Scripted faults are described
in ``tests.stub.script``, what is counted in ``tests.stub.book``.
"""

from tests.stub.book import (
    Counts,
    KeptBody,
    KeyCounts,
    Outcome,
    RequestRecord,
    Stats,
    Totals,
)
from tests.stub.client import StubProvider, StubRefusedError
from tests.stub.script import Rule, Script, ScriptedResponse

__all__ = [
    "Counts",
    "KeptBody",
    "KeyCounts",
    "Outcome",
    "RequestRecord",
    "Rule",
    "Script",
    "ScriptedResponse",
    "Stats",
    "StubProvider",
    "StubRefusedError",
    "Totals",
]
