"""Something that is wrong in a configuration, with its place."""

from typing import NamedTuple

Place = tuple[str | int, ...]
"""The way to a value: names of options, and positions in lists."""


class Fault(NamedTuple):
    """The fault, in words that quote no secret."""

    place: Place
    text: str

    def __str__(self) -> str:
        """Such as `policies.strict.hooks[1]: there is no such hook`."""
        way = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.place)
        return f"{way.removeprefix('.')}: {self.text}" if self.place else self.text
