"""What the author of a logits processor needs. No torch is loaded here.

A processor is a class. The names of what it is called with say which form it has (contract 7.1, 7.2):

    class Warmer:                                     # one row; a fresh instance for every sequence
        class Params(BaseModel):
            temperature: float = Field(gt=0)

        def __init__(self, params: Params):
            self.temperature = params.temperature

        def __call__(self, input_ids, logits):        # [vocab], changed in place
            logits.div_(self.temperature)

    class Warmers:                                    # all rows of a step; one instance for the server
        Params = Warmer.Params

        def __call__(self, logits, params):           # [rows, vocab], and a dict for each row
            return logits / logits.new_tensor([[p["temperature"]] for p in params])

Class attributes, all of which may be left out:

- `kind`: "mask", if it takes tokens out by setting their logits to minus infinity, and does nothing else;
  "shaper" (default), for anything else. Masks come first. No processor brings back a token that was masked
  before it, and a mask raises no logit.
- `Params`: a pydantic model of what a request may set. Without one, nothing may be set.
- `prepare(context, **args)`: a class method, called once at start with the arguments that the server's
  configuration sets, for what all instances share. What it raises keeps the server from starting.

`__init__` is given, by name, what it asks for of `params` (its `Params`, to be read; row form only),
`context` (a `Context`), `shared` (what `prepare` gave) and, without a `prepare`, the configured arguments. It
runs before the request is admitted, on a thread beside the engine's, as do the validators of `Params`: what
takes its time belongs there. `__call__` runs on the engine's one thread, which waits for it. What either
raises fails the request alone; what a validator refuses is the caller's fault.

What `__call__` does should depend on `input_ids` and the parameters alone. A processor that keeps something
from one call to the next, as how far it has read, must notice an `input_ids` that is no longer than before:
a call may be repeated, and the last tokens may be taken back (`Rewind`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, overload

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.protocol import Tokenizer

Kind = Literal["mask", "shaper"]


class LogitsProcessor(Protocol):
    """The per-row form, TensorRT-LLM's and Dynamo's (contract 7.1)."""

    def __call__(self, input_ids: "TokenIds", logits: "Tensor") -> "Tensor | None":
        """Change `logits` `[vocab]`, float32, in place, or return what is to stand there. `input_ids`: the
        sequence so far, prompt and output."""


class BatchLogitsProcessor(Protocol):
    """The batch form, SGLang's (contract 7.2)."""

    def __call__(self, logits: "Tensor", params: list[dict[str, Any]]) -> "Tensor":
        """Return what is to stand for `logits` `[rows, vocab]`, float32, which may be changed. A row's dict
        has its parameters, and its `Req` as `__req__`; it is the sequence's own, and lives as long. If the
        call fails, each row is called alone, its dict, and lists, sets and dicts in that, as before."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a processor may know of the engine that runs it."""

    tokenizer: "Tokenizer"
    vocab_size: int
    """Of the logits; the tokenizer may know fewer tokens."""
    eos_token_ids: tuple[int, ...]
    """That end an output; the tokenizer's own stands first."""
    device: "torch.device"
    """Where the logits are."""


class TokenIds(Sequence[int]):
    """A sequence's tokens so far, to be read. A slice is a list."""

    __slots__ = ("_ids", "num_prompt_tokens")

    def __init__(self, ids: list[int], num_prompt_tokens: int) -> None:
        self._ids = ids
        self.num_prompt_tokens = num_prompt_tokens

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        return self._ids[at]

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)


class Req:
    """A row's request in the batch form, as SGLang names it."""

    def __init__(self, ids: list[int], num_prompt_tokens: int) -> None:
        self._ids = ids
        self._num_prompt_tokens = num_prompt_tokens

    @property
    def origin_input_ids(self) -> list[int]:
        """The prompt's."""
        return self._ids[: self._num_prompt_tokens]

    @property
    def output_ids(self) -> list[int]:
        return self._ids[self._num_prompt_tokens :]


class NoParams(BaseModel):
    """Of a processor that has no `Params`."""

    model_config = ConfigDict(extra="forbid")


class AnyParams(BaseModel):
    """Whatever a request gives."""

    model_config = ConfigDict(extra="allow")


class BaseLogitsProcessor:
    """Dynamo's name: a processor written for it runs here when only its import line changes."""


class CustomLogitProcessor:
    """SGLang's, likewise. A request names it instead of sending its code."""

    Params: type[BaseModel] = AnyParams


def _in_vocabulary(token_id: int, info: ValidationInfo) -> int:
    if isinstance(info.context, Context) and token_id >= info.context.vocab_size:
        raise ValueError(f"token ids must be below {info.context.vocab_size}")
    return token_id


TokenId = Annotated[int, Field(ge=0, strict=True), AfterValidator(_in_vocabulary)]
"""For `Params`: a token of the model's. Validators find the `Context` as `ValidationInfo.context`."""
