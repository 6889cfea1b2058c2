"""A JSON document that is still being written, under a schema: whether it can still become valid.

Each schema that applies to a value is one check on the value. A document is lost with the first character
after which nothing valid can follow. Keywords such as `not` and `oneOf` are decided at the end of a value.

The library jsonschema validates only complete values. Grammar engines such as llguidance accept an object's
keys only in the schema's order, and would end valid answers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from hooks.json.reader import JsonReader, Kind, Word
from hooks.json.schema import EARLY, FALSE, TRUE, Compiled, Schema, array_of, object_of
from hooks.json.schema_checks import (
    Check,
    checks_of,
    first_wrong,
    is_array,
    is_full_array,
    is_full_object,
    is_number,
    is_object,
    is_string,
    may_be_string,
)

MAX_POWER = 5
"""Most digits of a number's exponent. A document with a longer one is too complex."""
_WORDS = {"true": TRUE, "false": FALSE, "null": None}


@dataclass(slots=True, eq=False, repr=False)
class _Frame:
    """An open object or array."""

    checks: list[Check]
    is_object: bool
    values: list[tuple[str, Any]] | None
    """The complete values in the form of `canonical`, each with its key; None: values are not kept."""
    seen: set[Any] = field(default_factory=set)
    """The same values without their keys, for an array."""
    keys: set[str] = field(default_factory=set)
    key: str = ""
    count: int = 0
    """The number of items that have begun, for an array."""

    @property
    def value(self) -> Any:
        """The complete object or array in the form of `canonical`; None if values are not kept."""
        if self.values is None:
            return None
        return object_of(dict(self.values)) if self.is_object else array_of(value for _, value in self.values)

    def lose_if_full(self) -> None:
        """Lose the checks that allow no further key or item. Called when another one begins."""
        for check in self.checks:
            if self.is_object:
                is_full = is_full_object(check.schema, self.keys)
            else:
                is_full = is_full_array(check.schema, self.count)
            if is_full:
                check.lose()


class Document:
    """A document that is read piece by piece under a schema."""

    def __init__(self, schema: Compiled) -> None:
        self.schema = schema
        self.is_too_complex = False
        """The document is lost: too many schemas apply to a value, or a number too large an exponent."""
        self._is_ambiguous = False
        """An object has a key twice, and it is unknown which of the two counts."""
        self._reader = JsonReader(self)
        self._checks = checks_of(schema.root)
        """The checks of the value or key that is being read or comes next."""
        self._root = self._checks[0]
        self._frames: list[_Frame] = []
        self._is_key = False
        self._text: list[str] = []
        """The pieces of the string or key that is being read."""
        self._length = 0
        self._early: list[tuple[Check, Callable[[str], bool]]] = []
        """Checks that can be lost before the string ends, each with a test whether its text may be valid."""
        self._looks = False
        """Whether a check in `_early` reads the whole string, and not only its first `EARLY` characters."""

    @property
    def is_lost(self) -> bool:
        """The document cannot become valid, or its validity cannot be decided."""
        return self._reader.is_bad or self.is_done

    @property
    def is_blank(self) -> bool:
        """The document has only white space so far."""
        return self._reader.is_blank

    def feed(self, text: str) -> int:
        """Read `text`. Returns how many of its characters a valid document can begin with: all, unless it
        `is_lost` with the next one. Raises `TimeoutError` if searching for patterns takes too long."""
        self.schema.stopwatch.start()
        return self._reader.feed(text)

    def finish(self) -> bool:
        """End the document. Returns whether it is valid. Raises `TimeoutError` as `feed` does."""
        self.schema.stopwatch.start()
        return self._reader.finish() and not self.is_lost

    # The methods of `hooks.json.reader.Listener`.

    @property
    def is_done(self) -> bool:
        return self._root.is_lost or self._is_ambiguous or self.is_too_complex

    def begin(self, kind: Kind) -> None:
        if self._frames and not self._frames[-1].is_object:
            self._begin_item(self._frames[-1])
        self._check_kind(kind)
        if kind in ("object", "array"):
            values: list[tuple[str, Any]] | None = [] if self.schema.needs_values else None
            self._frames.append(_Frame(self._checks, kind == "object", values))
        elif kind == "string":
            self._begin_string()

    def begin_key(self) -> None:
        frame = self._frames[-1]
        frame.lose_if_full()
        owners = [check for check in frame.checks if not check.is_lost]
        self._checks = []
        for check in owners:
            if check.schema.names is not None:
                self._put_under(check.schema.names, check)
        self._check_kind("string")
        closed = [check for check in owners if check.schema.is_closed]
        self._begin_string([(check, partial(_may_be_key, check.schema, frame)) for check in closed])
        self._is_key = True

    def add(self, piece: str) -> int:
        self._text.append(piece)
        before, self._length = self._length, self._length + len(piece)
        wrong = [(most + 1, check) for check in self._checks if (most := check.schema.max_length) is not None]
        early = [one for one in self._early if not one[0].is_lost]
        if early and (self._looks or before < EARLY):
            text = "".join(self._text)
            wrong += [(first_wrong(may_be, text, before), check) for check, may_be in early]
        for end, check in sorted(wrong, key=lambda one: one[0]):
            if end <= self._length:
                check.lose()
            if self._root.is_lost:
                return self._length - max(end - 1, before)
        return 0

    def end_string(self) -> None:
        text = "".join(self._text)
        if self._is_key:
            self._end_checks(lambda check: is_string(check.schema, text))
            self._end_key(text)
        else:
            self._end_value(text, lambda check: is_string(check.schema, text))

    def end_number(self, text: str) -> None:
        if len(text.lower().partition("e")[2].lstrip("+-0")) > MAX_POWER:
            self.is_too_complex = True
            return
        number = Decimal(text)
        self._end_value(number, lambda check: is_number(check.schema, number))

    def end_word(self, word: Word) -> None:
        self._end_value(_WORDS[word])

    def go_on(self) -> None:
        self._frames[-1].lose_if_full()

    def close(self) -> None:
        frame = self._frames.pop()
        self._checks = frame.checks
        if frame.is_object:
            self._end_value(frame.value, lambda check: is_object(check.schema, frame.keys), frame.keys)
        else:
            self._end_value(frame.value, lambda check: is_array(check, frame.count))

    # The checks that these methods use.

    def _begin_item(self, frame: _Frame) -> None:
        frame.lose_if_full()
        self._checks = []
        for check in frame.checks:
            if not check.is_lost:
                if (schema := check.schema.of_item(frame.count)) is not None:
                    self._put_under(schema, check)
                if check.schema.contains is not None:
                    self._put_under(check.schema.contains, check, "contains")
        frame.count += 1

    def _put_under(self, schema: Schema, owner: Check, role: str = "all") -> None:
        self._checks += checks_of(schema, owner, role)
        self.is_too_complex = self.is_too_complex or len(self._checks) > self.schema.max_checks

    def _check_kind(self, kind: Kind) -> None:
        for check in self._checks:
            if check.schema.kinds is not None and kind not in check.schema.kinds:
                check.lose()

    def _begin_string(self, early: Iterable[tuple[Check, Callable[[str], bool]]] = ()) -> None:
        self._text, self._length, self._is_key = [], 0, False
        self._early = list(early)
        self._looks = bool(self._early)
        for check in self._checks:
            if check.schema.values is not None or check.schema.pattern is not None:
                self._early.append((check, partial(may_be_string, check.schema)))
                self._looks = self._looks or check.schema.values is not None

    def _end_key(self, name: str) -> None:
        frame = self._frames[-1]
        self._is_ambiguous = name in frame.keys
        frame.keys.add(name)
        frame.key = name
        self._checks = []
        for check in frame.checks:
            for schema in [] if check.is_lost else check.schema.of_property(name):
                self._put_under(schema, check)
                if schema.is_impossible:
                    check.lose()

    def _end_value(
        self, value: Any, is_right: Callable[[Check], bool] | None = None, keys: Iterable[str] = ()
    ) -> None:
        """`value`: in the form of `canonical`. `is_right`: whether it meets the keywords for its kind."""

        def is_all_right(check: Check) -> bool:
            is_value = check.schema.values is None or value in check.schema.values
            return is_value and (is_right is None or is_right(check))

        self._end_checks(is_all_right, keys)
        for check in self._checks:
            if check.role == "contains" and check.owner is not None and not check.is_lost:
                check.owner.contain()
        if self._frames and self._frames[-1].values is not None:
            self._keep(value, self._frames[-1], self._frames[-1].values)

    def _keep(self, value: Any, frame: _Frame, values: list[tuple[str, Any]]) -> None:
        values.append((frame.key, value))
        if frame.is_object:
            return
        for check in frame.checks if value in frame.seen else ():
            if check.schema.has_unique_items:
                check.lose()
        frame.seen.add(value)

    def _end_checks(self, is_right: Callable[[Check], bool], keys: Iterable[str] = ()) -> None:
        """End the checks of a complete value or key, parts before their owners."""
        for check in reversed(self._checks):
            if not check.is_lost and not is_right(check):
                check.lose()
            check.end(keys)


def _may_be_key(schema: Schema, frame: _Frame, text: str) -> bool:
    return any(name.startswith(text) for name in schema.properties if name not in frame.keys)
