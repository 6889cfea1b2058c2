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
"""A text that clients may be given."""
Template = Annotated[Text, AfterValidator(_filled_in)]
"""What `str.format` makes a text of, given an `entity`."""
Names = Annotated[Sequence[str], Field(min_length=1)]
"""At least one."""
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@contextmanager
def blamed_on(argument: str) -> Iterator[None]:
    """Raise an `OSError` or a `ValueError` of what is done inside as a `ValueError` that names the argument:
    for what is in a file, or is only found out when the argument is used."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{argument}: {error}") from error
