"""The options of persons' decisions on tool calls."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class ApprovalOptions(BaseModel):
    model_config = ConfigDict(defer_build=True)

    approval_timeout: Annotated[float, Field(gt=0, le=86400)] = 300.0
    """Seconds in which a person decides on a tool call that a hook asks about. After them it is refused"""
    approval_webhook: Annotated[SecretStr, Field(min_length=1)] | None = None
    """URL that gets each such call by POST. Its answer may decide, or the operator does later. Without it and
    without an admin key nobody can decide, and such calls are withheld"""
    approval_webhook_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    """Key that signs what the webhook gets, in the header X-Weir-Signature. Better set as
    WEIR_APPROVAL_WEBHOOK_KEY"""
    max_waiting_calls: ClassVar[int] = 1000
    """Tool calls that may wait at a time. One more is refused."""
