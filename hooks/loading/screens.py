"""A hook's screen, checked when the hook is loaded, so that a request calls nothing of it but its methods."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from engine.protocol.import_path import describe
from hooks.api.screen import Mark, Screened


@dataclass(frozen=True, slots=True, eq=False)
class LoadedScreen:
    """The methods of a `Screened` hook and of its `Screen`, and the values that do not change."""

    may_skip: Callable[..., Any]
    skip: Callable[..., Any]
    step: Callable[..., Any]
    step_over: Callable[..., Any]
    width: int
    start: Mark
    anywhere: Mark

    @classmethod
    def of(cls, instance: Any) -> Self | None:
        """The screen of a hook; None: it has none. Raises `TypeError` for one that cannot be used."""
        try:
            screen = instance.screen if isinstance(instance, Screened) else None
            if screen is None:
                return None
            methods = instance.may_skip, instance.skip, screen.step, screen.step_over
            width, marks = screen.width, [checked(mark, 0) for mark in (screen.start, screen.anywhere)]
        except Exception as error:
            raise TypeError(f"its screen cannot be used: {describe(error)}") from error
        if type(width) is not int or width < 0:
            raise TypeError("its screen cannot be used: width is a number of characters")
        return cls(*methods, width, *marks)

    def wrapped(self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Self:
        """The same screen, with its methods replaced by `wrap(method)`."""
        return replace(
            self,
            may_skip=wrap(self.may_skip),
            skip=wrap(self.skip),
            step=wrap(self.step),
            step_over=wrap(self.step_over),
        )


def checked(mark: object, most_held: int) -> Mark:
    """The mark that a screen gave. Raises `TypeError` for anything else, for one that holds more than
    `most_held` characters, and for one that cannot be hashed."""
    if not isinstance(mark, Mark):
        raise TypeError(f"its screen gave {type(mark).__name__} for a mark")
    if type(mark.held) is not int or not 0 <= mark.held <= most_held:
        raise TypeError("its screen held characters that are out of range")
    hash(mark)
    return mark
