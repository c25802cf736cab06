"""Documents as they arrive: streams of protobuf answers to snapshots."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from functions.adapters.firestore.encoding import decode_fields, decode_time
from functions.adapters.firestore.requests import RESULT
from functions.core.errors import LedgerUnavailable
from functions.core.ports import Snapshot


async def found_documents(root: str, answers: AsyncIterator[Any]) -> list[Snapshot]:
    """Return the documents of a query's answers, in order."""
    return [
        _snapshot(root, answer.document, answer.read_time)
        async for answer in answers
        if answer.HasField("document")
    ]


async def counted(answers: AsyncIterator[Any]) -> int:
    """Return the whole number that an aggregation comes to.

    Raises:
        LedgerUnavailable: the answer has no such number.
    """
    async for answer in answers:
        found = answer.result.aggregate_fields.get(RESULT)
        if found is not None and found.WhichOneof("value_type") == "integer_value":
            return int(found.integer_value)
    raise LedgerUnavailable("Firestore answered an aggregation without a whole number")


class BatchGet:
    """What a batch get has told so far; it stays readable when the stream breaks."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._snapshots: dict[str, Snapshot] = {}

    async def receive(self, answers: AsyncIterator[Any]) -> None:
        """Take in the whole stream."""
        async for answer in answers:
            match answer.WhichOneof("result"):
                case "found":
                    self._add(_snapshot(self._root, answer.found, answer.read_time))
                case "missing":
                    path = _path(self._root, answer.missing)
                    read_time = decode_time(answer.read_time)
                    self._add(Snapshot(path=path, data=None, read_time=read_time))

    def in_order(self, paths: Sequence[str]) -> list[Snapshot]:
        """Return a snapshot for each path.

        Raises:
            LedgerUnavailable: the server left one out.
        """
        missing = set(paths) - self._snapshots.keys()
        if missing:
            raise LedgerUnavailable(f"Firestore did not answer for {sorted(missing)}")
        return [self._snapshots[path] for path in paths]

    def _add(self, snapshot: Snapshot) -> None:
        self._snapshots[snapshot.path] = snapshot


def _snapshot(root: str, document: Any, read_time: Any) -> Snapshot:
    return Snapshot(
        path=_path(root, document.name),
        data=decode_fields(document.fields),
        read_time=decode_time(read_time),
        update_time=decode_time(document.update_time),
    )


def _path(root: str, name: str) -> str:
    return name.removeprefix(f"{root}/")
