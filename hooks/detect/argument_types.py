"""Types of guards' arguments with limits that Python's types do not express, for `hooks.checked`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from string import Formatter
from typing import Annotated

from pydantic import AfterValidator, Field


def _whole(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("half a surrogate pair is not text")
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
"""A text that a client can receive."""
Template = Annotated[Text, AfterValidator(_filled_in)]
"""A text for `str.format`. Its only field is `{entity}`."""
Names = Annotated[Sequence[str], Field(min_length=1)]
"""At least one name."""
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@contextmanager
def blamed_on(argument: str) -> Iterator[None]:
    """Raise an `OSError`, a `ValueError` or a `RecursionError` from inside the block as a `ValueError` that
    names the argument: for a file's content, and for errors that show only when the argument is used."""
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{argument}: {error}") from error
