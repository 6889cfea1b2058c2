"""What the arguments of guards may be, where their Python type does not say it all: for `hooks.checked`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from string import Formatter
from typing import Annotated

from pydantic import AfterValidator, Field


def _whole(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("half a surrogate pair is no text")
    return text


def _filled_in(template: str) -> str:
    problem = "the only field is {entity}"
    try:
        fields = [field[1:] for field in Formatter().parse(template) if field[1] is not None]
    except ValueError as error:
        raise ValueError(f"{error}; {problem}") from error
    if any(field != ("entity", "", None) for field in fields):
        raise ValueError(problem)
    return template


Text = Annotated[str, AfterValidator(_whole)]
"""That clients may be given."""
Template = Annotated[Text, AfterValidator(_filled_in)]
"""For `str.format` with an `entity`."""
Names = Annotated[Sequence[str], Field(min_length=1)]
"""One or more."""
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@contextmanager
def blamed_on(argument: str) -> Iterator[None]:
    """What is raised inside, for what is in a file or is found out late, names the argument as well. Raises
    `ValueError`."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{argument}: {error}") from error
