"""A text of a measurement, with the value in it that a guard must find."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """`text[start:end]` is the value. `value` is None, and the places 0, if the text has none."""

    group: str
    entity: str
    text: str
    value: str | None = None
    start: int = 0
    end: int = 0
    plain: str | None = None
    """The value without its dress, if it has one."""


def with_value(group: str, entity: str, text: str, value: str) -> Case:
    """Return the case of `text` that has `value` at its first place."""
    start = text.index(value)
    return Case(group, entity, text, value, start, start + len(value))
