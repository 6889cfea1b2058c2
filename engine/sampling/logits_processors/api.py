"""The names that the author of a logits processor needs. No torch is loaded here.

A processor is a class. The names of its call's parameters say which form it has (contract 7.1, 7.2):

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

Class attributes, all of them optional:

- `kind`: "mask" for a processor that only sets logits to minus infinity; "shaper" (default) for any other.
  Masks run first. No processor brings back a token that was masked before it, and a mask raises no logit.
- `Params`: a pydantic model of the parameters that a request may set. Without it, a request may set none.
- `forbidden(self, input_ids)`: only for a mask of the row form. It returns the ids of the tokens that may not
  come next. The sampler then asks for these in place of `__call__`, and masks them in all rows at once.
- `prepare(context, **args)`: a class method, called once at start with the arguments from the server's
  configuration. It returns what all instances share. An exception in it keeps the server from starting.

`__init__` gets the arguments that it names, of these: `params` (its `Params`, not to be changed; row form
only), `context` (a `Context`), `shared` (the result of `prepare`) and, without a `prepare`, the
configured arguments. `__init__` and the validators of `Params` run before the request is admitted, on a
thread beside the engine's; slow work belongs there. `__call__` runs on the engine's only thread, which waits
for it. An exception in any of them fails only its own request. A value that a validator refuses is the
caller's error.

The result of `__call__` should depend only on `input_ids` and the parameters. A processor that keeps
something between calls, such as its place in the text, must notice an `input_ids` that is not longer than
before: a call may be repeated, and a `Rewind` may withdraw the last tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, overload

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.protocol import Tokenizer

Kind = Literal["mask", "shaper"]


class LogitsProcessor(Protocol):
    """The per-row form, TensorRT-LLM's and Dynamo's (contract 7.1)."""

    def __call__(self, input_ids: "TokenIds", logits: "Tensor") -> "Tensor | None":
        """Change `logits` `[vocab]`, float32, in place, or return their replacement. `input_ids`: the
        sequence so far, prompt and output."""


class BatchLogitsProcessor(Protocol):
    """The batch form, SGLang's (contract 7.2)."""

    def __call__(self, logits: "Tensor", params: list[dict[str, Any]]) -> "Tensor":
        """Return the replacement of `logits` `[rows, vocab]`, float32, which may be changed.

        A row's dict holds its parameters, and its `Req` as `__req__`. It belongs to the sequence and lives as
        long. If the call fails, each row is called alone. Its dict is then restored, with the lists, sets and
        dicts in it.
        """


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that a processor gets about the engine that runs it."""

    tokenizer: "Tokenizer"
    vocab_size: int
    """The width of the logits. The tokenizer may know fewer tokens."""
    eos_token_ids: tuple[int, ...]
    """The tokens that end an output; the tokenizer's own one comes first."""
    device: "torch.device"
    """The device of the logits."""


class TokenIds(Sequence[int]):
    """A sequence's tokens so far, read-only. A slice is a list."""

    __slots__ = ("_ids", "num_prompt_tokens")

    def __init__(self, ids: Sequence[int], num_prompt_tokens: int) -> None:
        self._ids = ids
        self.num_prompt_tokens = num_prompt_tokens

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        return list(self._ids[at]) if isinstance(at, slice) else self._ids[at]

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)


class Req:
    """A row's request in the batch form, as SGLang names it."""

    def __init__(self, ids: "TokenIds | list[int]", num_prompt_tokens: int) -> None:
        self._ids = ids
        self._num_prompt_tokens = num_prompt_tokens

    @property
    def origin_input_ids(self) -> list[int]:
        """The prompt's token ids."""
        return self._ids[: self._num_prompt_tokens]

    @property
    def output_ids(self) -> list[int]:
        return self._ids[self._num_prompt_tokens :]


class NoParams(BaseModel, extra="forbid"):
    """The parameters of a processor without `Params`: none."""


class AnyParams(BaseModel, extra="allow"):
    """Accepts any parameters."""


class BaseLogitsProcessor:
    """Dynamo's base class: a processor written for Dynamo runs here with a changed import line."""


class CustomLogitProcessor:
    """SGLang's base class, for the same reason. A request names the processor; it never sends code."""

    Params: type[BaseModel] = AnyParams


def _in_vocabulary(token_id: int, info: ValidationInfo) -> int:
    if isinstance(info.context, Context) and token_id >= info.context.vocab_size:
        raise ValueError(f"token ids must be below {info.context.vocab_size}")
    return token_id


TokenId = Annotated[int, Field(ge=0, strict=True), AfterValidator(_in_vocabulary)]
"""For `Params`: the id of a token of the model. Validators get the `Context` as `ValidationInfo.context`. It
is None in `weir config check`, which knows no model."""
