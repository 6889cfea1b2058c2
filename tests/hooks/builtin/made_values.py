"""Values made from patterns: random texts that a pattern matches, until one passes a check."""

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

_PARSER: Any = import_module("re._parser")
_MOST_REPEATS = 12
_DIGITS = "0123456789"
_TRIES = 300_000


def made_value(pattern: str, check: Callable[[str], bool] | None, rng: random.Random) -> str:
    """Return a text that `pattern` matches and that passes `check`."""
    tree = _PARSER.parse(pattern)
    for _ in range(_TRIES):
        value = _Maker(rng).text_of(tree)
        if check is None or check(value):
            return value
    raise ValueError(f"no text of {pattern} passes the check")


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._groups: dict[int, str] = {}

    def text_of(self, tree: Any) -> str:
        return "".join(self._one(str(kind), argument) for kind, argument in tree)

    def _one(self, kind: str, argument: Any) -> str:
        match kind:
            case "LITERAL":
                return chr(argument)
            case "IN":
                return self._of_class(self._rng.choice(argument))
            case "MAX_REPEAT" | "MIN_REPEAT":
                fewest, most, part = argument
                count = self._rng.randint(fewest, min(int(most), fewest + _MOST_REPEATS))
                return "".join(self.text_of(part) for _ in range(count))
            case "SUBPATTERN":
                group, _, _, part = argument
                text = self.text_of(part)
                self._groups[group] = text
                return text
            case "BRANCH":
                return self.text_of(self._rng.choice(argument[1]))
            case "GROUPREF":
                return self._groups[argument]
            case "ASSERT" | "ASSERT_NOT" | "AT":
                return ""
        raise ValueError(f"{kind} cannot be made")

    def _of_class(self, part: Any) -> str:
        kind, argument = part
        if str(kind) == "RANGE":
            return chr(self._rng.randint(*argument))
        return chr(argument) if str(kind) == "LITERAL" else self._rng.choice(_DIGITS)
