"""The protocols by which other gateways have the hooks judge texts."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from proxy.settings.values import parts

GuardAPIName = Literal["moderations", "litellm", "bedrock", "agentgateway", "fms", "nemo", "hooks"]


class GuardAPI(BaseModel):
    """One protocol, with its options."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: GuardAPIName
    """The protocol"""


def _guard_api(value: Any) -> Any:
    """A protocol without options may be given by its name alone."""
    return {"name": value} if isinstance(value, str) else value


GuardAPIs = Annotated[list[GuardAPI], BeforeValidator(lambda value: parts(value, _guard_api))]
