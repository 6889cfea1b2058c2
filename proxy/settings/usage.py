"""The prices of tokens, for the report of usage."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from engine.protocol.options import mapping

Money = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """The price of a million tokens of one model, in any currency."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    input: Money = 0.0
    """Money for a million tokens of prompts"""
    output: Money = 0.0
    """Money for a million tokens of outputs"""


class UsageOptions(BaseModel):
    model_config = ConfigDict(defer_build=True)

    prices: Annotated[dict[str, Price], BeforeValidator(mapping)] = {}
    """Money for a million tokens of each model by its name, input and output, for the report of usage"""
