"""The protocols by which other gateways have the hooks judge texts."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator, model_validator

from engine.protocol.options import parts

Category = Literal[
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
]
"""OpenAI's categories of moderations."""

GuardAPIName = Literal["moderations", "litellm", "bedrock", "agentgateway", "fms", "nemo", "hooks"]


class GuardAPI(BaseModel):
    """One protocol, with its options."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: GuardAPIName
    """The protocol"""
    categories: dict[str, Category] = {}
    """Categories by a regular expression that all of a hook's reason matches (moderations)"""

    @field_validator("categories")
    @classmethod
    def _are_expressions(cls, given: dict[str, Category]) -> dict[str, Category]:
        for pattern in given:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return given

    @model_validator(mode="after")
    def _categories_are_of_moderations(self) -> Self:
        if self.categories and self.name != "moderations":
            raise ValueError(f"categories: only moderations have them, and not {self.name}")
        return self


def _guard_api(value: Any) -> Any:
    """A protocol without options may be given by its name alone."""
    return {"name": value} if isinstance(value, str) else value


GuardAPIs = Annotated[list[GuardAPI], BeforeValidator(lambda value: parts(value, _guard_api))]
