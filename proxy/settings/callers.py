"""The bounds of what one caller does at once."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class CallerOptions(BaseModel):
    """The bounds of what one caller may do at once. `EngineOptions` has those of the in-process engine."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    max_requests_per_caller: Annotated[int, Field(ge=1)] = 1024
    """Requests of one caller at the same time. One more gets status 429. A caller is an API key, or on a
    server without keys an address"""
    max_body_bytes_per_caller: Annotated[int, Field(ge=1)] = 256 * 1024 * 1024
    """Bytes of the bodies of these requests. One more body beyond gets status 429"""
