"""Checks whether an unfinished value can become valid, and whether a complete one is valid."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from hooks.json.reader import MAX_NUMBER
from hooks.json.schema import Schema


@dataclass(slots=True, eq=False, repr=False)
class Check:
    """One schema on one value. A check is lost as soon as the value cannot become valid under its schema. It
    then notifies its owner, the check that it is a part of."""

    schema: Schema
    owner: "Check | None" = None
    role: str = "all"
    """Its role for the owner: see `Schema.in_place`; `contains` is for an item of the owner's value."""
    parts: dict[str, list["Check"]] = field(default_factory=dict, init=False)
    """The checks on the same value that belong to this one, by role."""
    is_lost: bool = field(default=False, init=False)
    """The value cannot become valid under the schema."""
    num_contained: int = field(default=0, init=False)
    """Items of the value that are valid under the schema's `contains`."""

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self.owner is not None:
                self.owner._miss(self.role)

    def end(self, keys: Iterable[str] = ()) -> None:
        """Decide a complete value; `keys` are those of an object. The parts must have ended before."""
        parts = self.parts
        is_true = "one" not in parts or sum(not part.is_lost for part in parts["one"]) == 1
        is_true = is_true and ("not" not in parts or self._has_lost("not"))
        if "if" in parts:
            is_true = is_true and not self._has_lost("else" if self._has_lost("if") else "then")
        for key in self.schema.dependent_schemas:
            is_true = is_true and not (key in keys and self._has_lost(f"with {key}"))
        if not is_true:
            self.lose()

    def contain(self) -> None:
        self.num_contained += 1
        most = self.schema.max_contains
        if most is not None and self.num_contained > most:
            self.lose()

    def _miss(self, role: str) -> None:
        if role == "all" or (role in ("any", "one") and all(part.is_lost for part in self.parts[role])):
            self.lose()
        is_decided = self._has_lost("if") or self._has_lost("then")
        if role in ("if", "then", "else") and is_decided and self._has_lost("else"):
            self.lose()

    def _has_lost(self, role: str) -> bool:
        return role in self.parts and self.parts[role][0].is_lost


def checks_of(schema: Schema, owner: Check | None = None, role: str = "all") -> list[Check]:
    """Return the checks of the schema and of all schemas for the same value within it, owners first."""
    checks = [Check(schema, owner, role)]
    for check in checks:
        for part, schemas in check.schema.in_place():
            check.parts[part] = [Check(one, check, part) for one in schemas]
            checks += check.parts[part]
    return checks


def first_wrong(may_be: Callable[[str], bool], text: str, num_right: int) -> int:
    """Return the length of the shortest beginning of `text` for which `may_be` is false, found by halving;
    the length of `text` plus 1 without one. `may_be` is true for the first `num_right` characters."""
    if may_be(text):
        return len(text) + 1
    wrong = len(text)
    while wrong - num_right > 1:
        middle = (num_right + wrong) // 2
        num_right, wrong = (middle, wrong) if may_be(text[:middle]) else (num_right, middle)
    return wrong


def may_be_string(schema: Schema, text: str) -> bool:
    """Whether a string that begins with `text` can be one of the schema's values and match its pattern."""
    if schema.values is not None and not any(value.startswith(text) for value in schema.texts):
        return False
    return schema.pattern is None or schema.pattern.may_be_in(text)


def is_string(schema: Schema, text: str) -> bool:
    """Whether a complete string is valid under the schema. Raises `TimeoutError` as its pattern does."""
    return (
        (schema.values is None or text in schema.values)
        and schema.min_length <= len(text)
        and (schema.max_length is None or len(text) <= schema.max_length)
        and (schema.pattern is None or schema.pattern.is_in(text))
    )


def is_number(schema: Schema, number: Decimal) -> bool:
    return (
        (schema.values is None or number in schema.values)
        and not (schema.is_integer and number != number.to_integral_value())
        and (schema.minimum is None or number >= schema.minimum)
        and (schema.maximum is None or number <= schema.maximum)
        and (schema.exclusive_minimum is None or number > schema.exclusive_minimum)
        and (schema.exclusive_maximum is None or number < schema.exclusive_maximum)
        and (schema.multiple_of is None or _is_multiple(number, schema.multiple_of))
    )


def is_object(schema: Schema, keys: set[str]) -> bool:
    return (
        keys.issuperset(schema.required)
        and schema.min_properties <= len(keys)
        and (schema.max_properties is None or len(keys) <= schema.max_properties)
        and all(keys.issuperset(needed) for key, needed in schema.dependent.items() if key in keys)
    )


def is_full_object(schema: Schema, keys: set[str]) -> bool:
    """Whether an object with these keys can have no further key."""
    is_full = schema.is_closed and keys.issuperset(schema.properties)
    return is_full or (schema.max_properties is not None and len(keys) >= schema.max_properties)


def is_array(check: Check, count: int) -> bool:
    """Whether the array's number of items, `count`, and of `contains` items is valid."""
    schema = check.schema
    is_long = schema.min_items <= count and (schema.max_items is None or count <= schema.max_items)
    return is_long and (schema.contains is None or check.num_contained >= schema.min_contains)


def is_full_array(schema: Schema, count: int) -> bool:
    """Whether an array of `count` items can have no further item."""
    following = schema.of_item(count)
    is_full = following is not None and following.is_impossible
    return is_full or (schema.max_items is not None and count >= schema.max_items)


def _is_multiple(number: Decimal, unit: Decimal) -> bool:
    """Whether `number` is an exact multiple of `unit`, without writing out large powers of ten."""
    digits, power = _whole(number)
    of, unit_power = _whole(unit)
    shift = power - unit_power
    if shift >= 0:
        return digits * pow(10, shift, of) % of == 0
    return digits == 0 or (-shift <= MAX_NUMBER and digits % (of * 10**-shift) == 0)


def _whole(number: Decimal) -> tuple[int, int]:
    """Return an integer and the power of ten whose product is the number."""
    _, digits, power = number.as_tuple()
    assert isinstance(power, int)
    return int("".join(map(str, digits))), power
