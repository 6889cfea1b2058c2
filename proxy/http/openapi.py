"""`/openapi.json`, made from the request models. pydantic makes the schemas; the rest needs no library."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from proxy import __version__

_REF = "#/components/schemas/{model}"


def openapi(endpoints: list[tuple[str, str, str, type[BaseModel] | None]]) -> dict[str, Any]:
    """The description of `endpoints`: each a method, a path, a summary of one line, and its body's model."""
    bodies = sorted({body for *_, body in endpoints if body is not None}, key=lambda model: model.__name__)
    references, definitions = models_json_schema([(body, "validation") for body in bodies], ref_template=_REF)
    paths: dict[str, Any] = {}
    for method, path, summary, body in endpoints:
        operation: dict[str, Any] = {"summary": summary, "responses": {"200": {"description": "The answer"}}}
        if body is not None:
            schema = references[body, "validation"]
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
            operation["responses"]["400"] = {"description": "An error object"}
        if "{" in path:
            parameter = {"name": path[path.index("{") + 1 : path.index("}")], "in": "path", "required": True}
            operation["parameters"] = [{**parameter, "schema": {"type": "string"}}]
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Weir", "version": __version__},
        "paths": paths,
        "components": {"schemas": definitions.get("$defs", {})},
    }
