"""`POST /tokenize` and `/detokenize`, as vLLM has them."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from proxy.openai.chat import Message
from proxy.openai.fields import TokenId


class TokenizeRequest(BaseModel):
    """A text, or a chat, which the model's chat template turns into a text."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_special_tokens: bool = True

    @model_validator(mode="after")
    def _one_of_both(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class DetokenizeRequest(BaseModel):
    """Token ids to turn into text."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    tokens: list[TokenId] = Field(fail_fast=True)
