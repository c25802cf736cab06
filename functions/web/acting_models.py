"""The small request bodies: an operator's note, the holder of an action."""

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from functions.web import problems
from functions.web.request_faults import faults_of, refuse
from functions.web.request_models import Body

MAX_HOLDER_CHARACTERS = 255
MAX_NOTE_CHARACTERS = 1000

B = TypeVar("B", bound=Body)


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise refuse("must hold printable characters only")
    return text


def _trimmed(text: str) -> str:
    if not text.strip():
        raise refuse("must not be blank")
    return text.strip()


class HolderBody(Body):
    """Who wants to act."""

    holder: Annotated[str, AfterValidator(_one_line)] = Field(
        min_length=1,
        max_length=MAX_HOLDER_CHARACTERS,
        description="Name of the one who acts; the same name asks again and is told the same.",
        examples=["publisher-1"],
    )


class NoteBody(Body):
    """What an operator found out or did."""

    note: Annotated[str, AfterValidator(_trimmed)] = Field(
        min_length=1,
        max_length=MAX_NOTE_CHARACTERS,
        description="What was found out or done.",
        examples=["deleted by hand, replayed"],
    )


def read_small(model: type[B], value: Any) -> B:
    """Return a parsed body as `model`; `value` comes from `strict_json.parse`.

    Raises:
        Problem: 422 with one error per broken rule.
    """
    try:
        return model.model_validate(value)
    except ValidationError as exc:
        raise problems.unprocessable(list(faults_of(exc, {(): model}))) from exc
