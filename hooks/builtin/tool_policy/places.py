"""Places in JSON: pointers (RFC 6901) in which a step may stand for every item, member or name."""

from typing import Any

from hooks.builtin.tool_policy.arguments import Number, folded

_EVERY, _NAMES = object(), object()


class UnreadableError(Exception):
    """A value has another form than the pointer or the condition expects."""


class Pointer:
    """Finds values in JSON. The step `*` stands for every item of an array, or every member of an object, and
    the step `~`, which no other pointer has, for the names of the members."""

    def __init__(self, written: str) -> None:
        """Raises `ValueError` for a text that is no pointer."""
        if written and not written.startswith("/"):
            raise ValueError(f"{written!r} is no JSON pointer: it begins with /")
        self._steps = tuple(_read(step) for step in written.split("/")[1:])

    @property
    def member(self) -> str | None:
        """The member of the outermost object that the values are in; None: they may be in any."""
        first = self._steps[0] if self._steps else _EVERY
        return first if isinstance(first, str) else None

    def values(self, value: Any) -> list[Any]:
        """The values at this place of `value`. A member that is missing or null has none. Raises
        `UnreadableError` if there is something else than an object or an array on the way, or a name that
        some programs take for one of the pointer's."""
        found = [value]
        for step in self._steps:
            found = [inner for outer in found for inner in _inside(outer, step)]
        return found


def _read(step: str) -> str | object:
    if step in ("*", "~"):
        return _EVERY if step == "*" else _NAMES
    return step.replace("~1", "/").replace("~0", "~")


def _inside(outer: Any, step: str | object) -> list[Any]:
    if isinstance(outer, dict):
        if isinstance(step, str):
            if any(name != step and folded(name) == folded(step) for name in outer):
                raise UnreadableError
            return [] if outer.get(step) is None else [outer[step]]
        return list(outer.values() if step is _EVERY else outer)
    if not isinstance(outer, list) or step is _NAMES:
        raise UnreadableError
    if step is _EVERY:
        return outer
    if not (isinstance(step, str) and step.isascii() and step.isdigit()):
        raise UnreadableError
    return outer[int(step) :][:1]


def text_of(value: Any) -> str:
    """A scalar as a text: a string as it is, anything else as JSON has it. Raises `UnreadableError`."""
    if isinstance(value, str):
        return value
    if isinstance(value, Number):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise UnreadableError
