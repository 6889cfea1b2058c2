"""The options of clients' addresses."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.networks import IPvAnyNetwork

from proxy.settings.values import parts


class AddressOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    trusted_forwarders: Annotated[list[IPvAnyNetwork], BeforeValidator(parts)] = []
    """Address or network of a reverse proxy, such as 10.0.0.0/8; repeat. Its X-Forwarded-For is believed"""
