"""What a batch answers, line by line."""

from typing import Annotated, Literal

from pydantic import Field, RootModel

from functions.web.response_models import JobShown, ProblemShown, Shown

LineNumber = Annotated[int, Field(ge=1, description="Number of the line it answers, from 1.")]


class LineAccepted(Shown):
    """A line that is a job."""

    line: LineNumber
    status: Literal[200, 202] = Field(description="202: accepted; 200: known already.")
    job: JobShown


class LineRefused(Shown):
    """A line that was refused; after a 5xx it is not certain whether its job was accepted.

    Of many faults at places with long names it tells the first ones.
    """

    line: LineNumber
    status: int = Field(
        ge=400, le=599, description="What the line would get as a request of its own."
    )
    problem: ProblemShown


class LineAnswer(RootModel[LineAccepted | LineRefused]):
    """The answer to one line."""
