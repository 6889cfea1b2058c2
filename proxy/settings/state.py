"""The options of what is shared."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from proxy.settings.database_url import check_url

AtLeastOne = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]

SCHEMES = ("sqlite:///", "redis://", "rediss://", "postgresql://")


class StateOptions(BaseModel):
    """The bounds of the responses that are kept, and where what processes share is."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    max_stored_responses: NotNegative = 10_000
    """Responses kept for previous_response_id, the latest used; 0: none"""
    max_stored_responses_per_caller: AtLeastOne = 1000
    """Responses kept of one caller"""
    max_stored_bytes: AtLeastOne = 256 * 1024 * 1024
    """Bytes of all responses kept, about, with the conversations that they end"""
    max_stored_bytes_per_caller: AtLeastOne = 32 * 1024 * 1024
    """Bytes of the responses kept of one caller, about"""
    state: SecretStr | None = None
    """URL of what several servers share, or of what is kept over a restart: sqlite:///FILE, redis://HOST,
    postgresql://HOST/DATABASE. By default it ends with the server"""
    state_timeout: Annotated[float, Field(gt=0)] = 2.0
    """Seconds in which the shared state must answer"""

    @field_validator("state")
    @classmethod
    def _state_can_be_used(cls, url: SecretStr | None) -> SecretStr | None:
        return check_url(url, SCHEMES)
