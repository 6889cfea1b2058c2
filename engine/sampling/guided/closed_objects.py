"""Closes the objects of a JSON schema: they have no other properties than the schema names.

By JSON Schema's own rules, an object may have any other properties too, unless `additionalProperties` forbids
them. A model that is held to such a schema can write properties until its tokens are used up. So
`additionalProperties` that is absent counts as false, as in vLLM with xgrammar. Every text that the closed
schema allows is valid under the given one.

- A schema that names no property stays free, such as `{"type": "object"}`.
- Schemas that describe the same value (`allOf`, `anyOf`, `oneOf`, `$ref` beside other keywords) name its
  properties together, as for `unevaluatedProperties`.
- If one of these has `additionalProperties` or `unevaluatedProperties`, all of them stay as they are.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import orjson

Schema = Any
"""A JSON value at the place of a schema. Its form is not checked: the library does that."""

MAX_STEPS = 20_000
"""Schemas that are looked at, and names that are written. A document that needs more is used as it is: with
references, it can describe many times as many as it has."""

_BRANCHES = ("allOf", "anyOf", "oneOf")
"""Keywords with lists of schemas that describe the same value."""
_NAMING = ("properties", "patternProperties")
_MAPS = (*_NAMING, "$defs", "definitions")
_SCHEMAS = ("additionalProperties", "items", "additionalItems", "prefixItems")
_DECIDING = ("additionalProperties", "unevaluatedProperties")


class _NotClosableError(Exception):
    """A reference is not followed here, or the document needs too many steps."""


def with_closed_objects(text: str) -> str:
    """The schema, as JSON, with closed objects. It stays as it is if its references lead out of the document,
    or if it is too much: the library judges it."""
    try:
        return orjson.dumps(_Document(orjson.loads(text)).closed()).decode()
    except (_NotClosableError, RecursionError, orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text


class _Document:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._num_steps = 0
        self._copies: dict[str, str] = {}
        """By reference, the name of a copy of its target that is a part of other schemas' objects."""

    def closed(self) -> Schema:
        root = self._close(self._root)
        made: dict[str, Schema] = {}
        while missing := [reference for reference in self._copies if reference not in made]:
            for reference in missing:
                made[reference] = self._as_part(self._target(reference))
        if not made:
            return root
        return {**root, "$defs": _dict(root, "$defs") | {self._copies[one]: made[one] for one in made}}

    def _close(self, schema: Schema) -> Schema:
        """Close a schema that describes a whole value."""
        if not isinstance(schema, dict):
            return schema
        if _has_parts(schema):
            made, parts = self._as_part(schema), self._parts(schema)
        else:
            made, parts = self._with_inner(schema, self._close), [schema]
        is_decided = any(keyword in part for part in parts for keyword in _DECIDING)
        if is_decided or not any(map(_names_properties, parts)):
            return made
        named = [name for part in parts for name in (*_dict(part, "properties"), *_list(part, "required"))]
        patterns = [pattern for part in parts for pattern in _dict(part, "patternProperties")]
        self._count(len(named) + len(patterns))
        for keyword, names in (("properties", named), ("patternProperties", patterns)):
            if names:
                any_value = {name: True for name in names if isinstance(name, str)}
                made[keyword] = any_value | _dict(made, keyword)
        return {**made, "additionalProperties": False}

    def _as_part(self, schema: Schema) -> Schema:
        """Close the values inside a schema that describes a value together with other schemas."""
        if not isinstance(schema, dict):
            return schema
        made = self._with_inner(schema, self._as_part)
        if "$ref" in schema:
            self._target(schema["$ref"])
            name = self._copies.setdefault(schema["$ref"], f"weir-part-{len(self._copies)}")
            made["$ref"] = f"#/$defs/{name}"
        return made

    def _with_inner(self, schema: dict[str, Schema], treat: Callable[[Schema], Schema]) -> dict[str, Schema]:
        """A copy. The schemas of other values are closed, and `treat` makes those of the same value."""
        self._count()
        if "$id" in schema and schema is not self._root:
            raise _NotClosableError  # references inside begin at this schema
        made = dict(schema)
        for keyword in _BRANCHES:
            if isinstance(schema.get(keyword), list):
                made[keyword] = [treat(one) for one in schema[keyword]]
        for keyword in _MAPS:
            if isinstance(schema.get(keyword), dict):
                made[keyword] = {name: self._close(one) for name, one in schema[keyword].items()}
        for keyword in _SCHEMAS:
            if keyword in schema:
                value = schema[keyword]
                is_list = isinstance(value, list)
                made[keyword] = [self._close(one) for one in value] if is_list else self._close(value)
        return made

    def _parts(self, schema: dict[str, Schema]) -> list[dict[str, Schema]]:
        """The schema, and all other schemas that describe the same value."""
        parts: list[dict[str, Schema]] = []
        followed: set[str] = set()
        waiting: list[Schema] = [schema]
        while waiting:
            self._count()
            part = waiting.pop()
            if not isinstance(part, dict):
                continue
            parts.append(part)
            if "$ref" in part and (target := self._target(part["$ref"])) and part["$ref"] not in followed:
                followed.add(part["$ref"])
                waiting.append(target)
            waiting += [one for keyword in reversed(_BRANCHES) for one in reversed(_list(part, keyword))]
        return parts

    def _target(self, reference: Schema) -> Schema:
        """The schema at a JSON pointer (RFC 6901) into the document."""
        if not isinstance(reference, str) or not f"{reference}/".startswith("#/"):
            raise _NotClosableError
        found = self._root
        for name in unquote(reference).split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name) if isinstance(found, list) else name]
            except (LookupError, TypeError, ValueError) as error:
                raise _NotClosableError from error
        return found

    def _count(self, num: int = 1) -> None:
        self._num_steps += num
        if self._num_steps > MAX_STEPS:
            raise _NotClosableError


def _has_parts(schema: dict[str, Schema]) -> bool:
    """Whether several schemas describe an object together. Branches of a plain choice are closed alone."""
    keywords = [keyword for keyword in (*_BRANCHES, "$ref") if keyword in schema]
    is_joined = len(keywords) > 1 or len(_list(schema, "allOf")) > 1
    own = (*_NAMING, *_DECIDING, "required")
    return is_joined or (bool(keywords) and any(keyword in schema for keyword in own))


def _names_properties(schema: dict[str, Schema]) -> bool:
    return any(isinstance(schema.get(keyword), dict) for keyword in _NAMING)


def _list(schema: dict[str, Schema], keyword: str) -> list[Schema]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _dict(schema: dict[str, Schema], keyword: str) -> dict[str, Schema]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}
