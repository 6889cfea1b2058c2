"""The options of upstreams that speak OpenAI's API."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator

from engine.protocol.fields.table import FIELDS, Relay
from engine.protocol.options import parts


class OpenAIOptions(BaseModel):
    """The fields of a request that an upstream gets (openai)."""

    model_config = ConfigDict(defer_build=True)

    relay_fields: Annotated[tuple[str, ...], BeforeValidator(parts)] = ()
    """Field of requests that the upstream gets in addition to those of docs/fields.md; repeat. It may name
    hosts, adapters and other callers' sessions there (openai)"""

    @field_validator("relay_fields")
    @classmethod
    def _may_be_relayed(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            field = FIELDS.get(name)
            if field is not None and field.limit is not None:
                raise ValueError(f"{name} is a name for {field.limit}, which the upstream always gets")
            if field is not None and field.relay is Relay.NEVER:
                raise ValueError(f"no upstream gets {name}: it is refused or answered here")
        return names
