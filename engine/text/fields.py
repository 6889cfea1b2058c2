"""vLLM's fields of a request that say how a prompt becomes token ids, and token ids a text."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.protocol import GenerationRequest, RequestError


class TextFields(BaseModel):
    """The fields by their names in `GenerationRequest.extra`. The defaults are vLLM's."""

    model_config = ConfigDict(strict=True, frozen=True)

    add_special_tokens: bool | None = None
    """Whether the tokenizer adds its special tokens to a prompt. None: to a completion's prompt, and not to a
    chat, whose template writes them."""
    skip_special_tokens: bool = True
    """False: the text of special tokens is a part of the output's text. The token that ends an output has
    none."""
    spaces_between_special_tokens: bool = True
    """False, with `skip_special_tokens` false: no space is between two added tokens, though the
    tokenizer's decoder writes one."""
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    """Keep the last tokens of each prompt, at most so many. -1: as many as the model has room for."""
    suffix: str | None = None
    """The text after the output, in a completion. Empty: none."""
    truncation_side: Literal["left"] = "left"
    """The side that loses tokens. An output continues the end of its prompt, so the end stays."""

    @classmethod
    def of(cls, request: GenerationRequest) -> Self:
        """Raises `RequestError`, which names the field."""
        given = {name: request.extra.get(name) for name in cls.model_fields}
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = str(first["loc"][0])
            raise RequestError(f"{name}: {first['msg']}.", param=name) from error

    def truncated(self, ids: list[int], room: int) -> list[int]:
        """The tokens of a prompt that are kept. `room`: the most that the model can take. Raises
        `RequestError`."""
        kept = self.truncate_prompt_tokens
        if kept is None or room < 1:
            return ids
        if kept == 0 or kept > room:
            field = "truncate_prompt_tokens"
            raise RequestError(f"{field} must be -1, or between 1 and {room}.", param=field)
        return ids[-(room if kept == -1 else kept) :]
