"""`/openapi.json`, made from the models of bodies. pydantic makes the schemas; the rest needs no library."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from proxy import __version__

_REF = "#/components/schemas/{model}"


class Operation(NamedTuple):
    """One method of one path, as the document describes it."""

    method: str
    path: str
    summary: str
    """One line."""
    body: type[BaseModel] | None
    error: tuple[str, type[BaseModel]] | None = None
    """The status of errors (`default`: any other) and their shape. None: an error object with 400."""


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """The description of `operations`."""
    shapes = {shape for one in operations for shape in (one.body, one.error and one.error[1]) if shape}
    by_name = sorted(shapes, key=lambda shape: shape.__name__)
    references, definitions = models_json_schema([(one, "validation") for one in by_name], ref_template=_REF)
    paths: dict[str, Any] = {}
    for method, path, summary, body, error in operations:
        operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": "The answer"}}}
        if body is not None:
            operation["requestBody"] = {"required": True, **_json(references[body, "validation"])}
        if error is not None:
            status, shape = error
            described = operation["responses"].setdefault(status, {"description": "An error"})
            described |= _json(references[shape, "validation"])
        elif body is not None:
            operation["responses"]["400"] = {"description": "An error object"}
        if names := re.findall(r"{(\w+)}", path):
            place = {"in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [{"name": name, **place} for name in names]
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weir", "version": __version__},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }


def _json(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
