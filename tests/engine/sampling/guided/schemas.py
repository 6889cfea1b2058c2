"""Random JSON schemas in the shapes of the JSON Schema Test Suite. Their documents have a bounded length."""

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

WORDS = ["order", "status", "id", "note", "größe", "price in €", 'a"b', "x-y", "items", "when"]
PATTERNS = [
    "^[A-Z]{3}-[0-9]{4}$",
    "^(red|green|blue)$",
    "^[a-f0-9]{8}$",
    "^\\d{3}\\.\\d{2}$",
    '^[^"\\\\]{2,6}$',
    "ab?c",
]
FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"]


class Schemas:
    """Draws schemas from one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def draw(self) -> Schema:
        kind = self._rng.choice(
            [*self._kinds(2), self._recursive, self._referring, self._object, self._object]
        )
        return kind(2)

    def _any(self, depth: int) -> Schema:
        return self._rng.choice(self._kinds(depth))(depth)

    def _kinds(self, depth: int) -> list[Callable[[int], Schema]]:
        flat = [
            self._enum,
            self._const,
            self._integer,
            self._number,
            self._string,
            self._pattern,
            self._format,
        ]
        deep = [self._object, self._object, self._array, self._tuple, self._union, self._all_of, self._types]
        return [*flat, self._boolean, *(deep if depth else [])]

    def _enum(self, _: int) -> Schema:
        values = ["yes", "no", "a\nb", 1, -2.5, True, None, {"a": [1]}, "日本"]
        return {"enum": self._rng.sample(values, self._rng.randint(1, 5))}

    def _const(self, _: int) -> Schema:
        return {"const": self._rng.choice(["fixed", 7, None, [1, {"b": "c"}], False])}

    def _boolean(self, _: int) -> Schema:
        return {"type": self._rng.choice(["boolean", "null"])}

    def _integer(self, _: int) -> Schema:
        low = self._rng.randint(-1000, 1000)
        schema: Schema = {
            "type": "integer",
            "minimum": low,
            "maximum": low + self._rng.choice([0, 3, 70, 5000]),
        }
        if self._rng.random() < 0.3:
            schema = {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 1000}
            schema["multipleOf"] = self._rng.choice([2, 5, 7])
        return schema

    def _number(self, _: int) -> Schema:
        low = self._rng.choice([-10.5, 0, 0.25, 99])
        return {
            "type": "number",
            "minimum": low,
            "maximum": low + 1.5,
            "multipleOf": self._rng.choice([0.25, 0.5]),
        }

    def _string(self, _: int) -> Schema:
        least = self._rng.choice([0, 0, 1, 5])
        return {"type": "string", "minLength": least, "maxLength": least + self._rng.randint(0, 12)}

    def _pattern(self, _: int) -> Schema:
        return {"type": "string", "pattern": self._rng.choice(PATTERNS), "maxLength": 30}

    def _format(self, _: int) -> Schema:
        return {"type": "string", "format": self._rng.choice(FORMATS), "maxLength": 45}

    def _types(self, _: int) -> Schema:
        return {"type": ["boolean", "null", "string"], "maxLength": 8}

    def _object(self, depth: int) -> Schema:
        names = self._rng.sample(WORDS, self._rng.randint(0, 4))
        return {
            "type": "object",
            "properties": {name: self._any(depth - 1) for name in names},
            "required": self._rng.sample(names, self._rng.randint(0, len(names))),
            "additionalProperties": False,
        }

    def _array(self, depth: int) -> Schema:
        least = self._rng.randint(0, 2)
        most = least + self._rng.randint(0, 2)
        return {"type": "array", "items": self._any(depth - 1), "minItems": least, "maxItems": most}

    def _tuple(self, depth: int) -> Schema:
        num = self._rng.randint(1, 3)
        items = [self._any(depth - 1) for _ in range(num)]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": self._rng.randint(0, num)}

    def _union(self, depth: int) -> Schema:
        return {"anyOf": [self._any(depth - 1) for _ in range(self._rng.randint(2, 3))]}

    def _all_of(self, _: int) -> Schema:
        return {
            "allOf": [
                {"type": "object", "properties": {"a": self._integer(0)}, "required": ["a"]},
                {"properties": {"b": self._string(0)}, "additionalProperties": True},
            ],
            "maxProperties": 2,
            "minProperties": 2,
            "required": ["b"],
        }

    def _referring(self, depth: int) -> Schema:
        return {
            "$defs": {"one": self._any(depth - 1), "two": {"$ref": "#/$defs/one"}},
            "type": "array",
            "prefixItems": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/two"}],
            "items": {"$ref": "#/$defs/two"},
            "minItems": 1,
            "maxItems": 3,
        }

    def _recursive(self, depth: int) -> Schema:
        """A linked list of any length."""
        link = {"anyOf": [{"type": "null"}, {"$ref": "#"}]}
        return {
            "type": "object",
            "properties": {"value": self._boolean(0), "next": link},
            "required": ["value", "next"],
            "additionalProperties": False,
        }
