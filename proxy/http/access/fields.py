"""Reads a request's fields: its body, as one of the classes of `proxy.wire` has it."""

import asyncio
from contextlib import suppress
from typing import TypeVar

from pydantic import ValidationError

from proxy.http.access.bodies import SMALL, check_counts, read_json
from proxy.http.door import Arrival
from proxy.wire.body import RequestBody
from proxy.wire.errors import APIError

F = TypeVar("F", bound=RequestBody)


async def read_fields(arrival: Arrival, kind: type[F], *, names_model: bool) -> F:
    """The body. Raises `APIError` 400, 413, 415 or 429, and `ValidationError`."""
    http, settings = arrival.http, arrival.service.settings
    # A web page can send any other content type to another site without asking for leave.
    if arrival.body is None and http.content_type != "application/json":
        raise APIError(415, "The body must be JSON, with the header Content-Type: application/json.")
    encoding = http.headers.get("Content-Encoding", "identity")
    if arrival.body is None and encoding != "identity":
        raise APIError(415, f"The body must not be compressed: {encoding} is not read here.")
    lengths = [model.info.max_model_len for model in arrival.deployment.models_of(arrival.key)]
    value = await read_json(arrival, settings, lengths)
    check_counts(value, settings)
    # Others get a turn between two steps that take milliseconds for a large body.
    is_large = http.content_length is None or http.content_length > SMALL
    if is_large:
        await asyncio.sleep(0)
    try:
        fields = kind.model_validate(value)
    except ValidationError:
        name = value.get("model") if isinstance(value, dict) else None
        with suppress(APIError):  # for the log
            if names_model and isinstance(name, str | None):
                arrival.route = arrival.deployment.route(arrival.key, name)
        raise
    if is_large:
        await asyncio.sleep(0)
    return fields
