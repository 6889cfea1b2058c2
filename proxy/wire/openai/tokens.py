"""`POST /tokenize` and `/detokenize`, as vLLM has them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.protocol import GenerationRequest
from proxy.wire.body import RequestBody
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.chat import Message, Tool
from proxy.wire.openai.endpoint_fields import check_code
from proxy.wire.openai.fields import TokenId

_READ_HERE = ("model", "prompt", "messages", "tools", "return_token_strs")


class TokenizeRequest(RequestBody):
    """A text, or a chat, which the model's chat template turns into a text. A null means the same as a
    missing field."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=(), defer_build=True)

    prompt: str | None = None
    messages: list[Message] | None = Field(None, fail_fast=True)
    tools: list[Tool] | None = Field(None, fail_fast=True)
    add_special_tokens: bool | None = Field(None, description="Default: true for a text, false for a chat")
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = Field(None, description="Also the tokens' entries in the vocabulary")

    @model_validator(mode="after")
    def _one_of_both(self) -> "TokenizeRequest":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self

    def to_request(self, request_id: str, model: str, *, caller: str) -> GenerationRequest:
        """The request whose prompt it is. Raises `RequestError` for code (contract 7.3)."""
        given = self.model_dump(exclude_none=True, exclude=set(_READ_HERE))
        check_code(given)
        return GenerationRequest(
            request_id=request_id,
            model=model,
            endpoint="completions" if self.messages is None else "chat",
            messages=tuple(self.messages or ()),
            prompts=() if self.prompt is None else (self.prompt,),
            tools=tuple(tool.model_dump(exclude_unset=True) for tool in self.tools or ()),
            extra=given,
            caller=caller,
        )

    def body(self, admitted: GenerationRequest) -> JSONObject:
        """An upstream's body, for the request as hooks let it go on."""
        prompt: JSONObject = {"prompt": admitted.prompts[0]} if admitted.prompts else {}
        if admitted.is_chat:
            prompt = {"messages": [*admitted.messages]}
        tools = {"tools": list(admitted.tools)} if admitted.tools else {}
        strings = {"return_token_strs": True} if self.return_token_strs else {}
        return {**admitted.extra, **prompt, **tools, **strings}


class DetokenizeRequest(RequestBody):
    """Token ids to turn into text."""

    model_config = ConfigDict(strict=True, defer_build=True)

    tokens: list[TokenId] = Field(fail_fast=True)

    def to_request(self, request_id: str, model: str, *, caller: str) -> GenerationRequest:
        """The request whose prompt the token ids are."""
        return GenerationRequest(
            request_id=request_id,
            model=model,
            endpoint="completions",
            prompts=(tuple(self.tokens),),
            caller=caller,
        )


class Tokens(BaseModel):
    """An upstream's answer to `/tokenize`."""

    model_config = ConfigDict(strict=True, protected_namespaces=(), defer_build=True)

    tokens: list[TokenId] = Field(fail_fast=True)
    token_strs: list[str] | None = Field(None, fail_fast=True)
    max_model_len: int | None = None


class Detokenized(BaseModel):
    """An upstream's answer to `/detokenize`."""

    model_config = ConfigDict(strict=True, defer_build=True)

    prompt: str
