"""The seam between an engine and the rest of Weir: values only, no torch, no HTTP.

An engine takes a `GenerationRequest` and yields `Delta`s. Everything that crosses is immutable. What travels
backwards goes through the iterator: closing it cancels the engine's work on that request, and sending it a
`Rewind` takes an output back to an earlier token.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from engine.histogram import Histogram
from engine.processor_specs import LogitsProcessorSpec

Channel = Literal["content", "reasoning", "tool_call", "echo"]
"""One of a choice's text streams. `echo` is the prompt, given back (completions only)."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

Prompt = str | tuple[int, ...]
"""A text, or the token ids of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to draw tokens and when to stop. Names and meanings are vLLM's; defaults change nothing."""

    n: int = 1
    """Outputs for each prompt."""
    best_of: int | None = None
    """Candidates to generate for each prompt, of which the `n` with the highest logprob per token are given;
    at least `n`. None: `n`."""
    max_tokens: int | None = None
    """Tokens to generate for each output; None: up to the end of the model's context."""
    min_tokens: int = 0
    """Tokens before which neither an end-of-sequence token, a stop string nor a stop id ends an output."""
    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 0
    """0: all."""
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    """Output i of a prompt draws from its own generator, seeded with `seed + i`."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """Top alternatives to give with each token; 0: the chosen token's logprob alone; None: none at all."""
    logits_processors: tuple[LogitsProcessorSpec, ...] = ()
    """Beside those that the engine runs for every request. An engine that cannot run them refuses them."""

    @property
    def num_candidates(self) -> int:
        """Outputs to generate for each prompt, given or not."""
        return max(self.n, self.best_of or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """What a caller asks of an engine: one HTTP request, whole.

    A chat, and what the responses endpoint asks, has `messages`; a completion has `prompts`, each of which
    gets `sampling.n` outputs. Outputs are numbered prompt by prompt: output `p * n + i` is the i-th of prompt
    p.
    """

    request_id: str
    model: str
    """The model's name as the caller gave it."""
    endpoint: Literal["chat", "completions", "responses"]
    messages: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Prompt, ...] = ()
    sampling: SamplingParams = SamplingParams()
    given: frozenset[str] = frozenset()
    """Names of the fields that the caller gave, defaults or not: an upstream's own defaults may be others."""
    echo: bool = False
    """Begin each output with its prompt, as an `echo` channel (with logprobs, if `sampling.logprobs`)."""
    return_token_ids: bool = False
    """The caller wants token ids. An engine that has them gives them anyway; an upstream must be asked."""
    cache_salt: str | None = field(default=None, repr=False)
    """Prompts share what the engine has cached only with requests of the same salt, or of none."""
    priority: int = 0
    """Lower is served earlier, by an engine that schedules by priority."""
    stream: bool = False
    """How the caller wants the answer. It never changes what an engine yields."""
    hooks: tuple[str, ...] = ()
    """Hooks to run beside the server's own, from those that it lets a request name."""
    user: str | None = None
    """The caller's identity, as the caller gave it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the caller's JSON that Weir has no name for. An upstream gets them; the local engine refuses
    those that it knows it could not honour."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """What the model may call, as the API has them: `{"type": "function", "function": {"name": ...}}`."""
    tool_choice: str | Mapping[str, Any] | None = None
    """`none`, `auto`, `required`, or a function's name as the API has it. None: not told, which is `auto`."""
    parallel_tool_calls: bool = True
    """Whether an output may make more than one call."""

    @property
    def is_chat(self) -> bool:
        """It has `messages`."""
        return self.endpoint != "completions"

    @property
    def num_outputs(self) -> int:
        return self.sampling.n * max(1, len(self.prompts))

    @property
    def num_candidates(self) -> int:
        """Outputs to generate, of which `num_outputs` are given."""
        return self.sampling.num_candidates * max(1, len(self.prompts))

    @property
    def is_searched(self) -> bool:
        """Whether outputs are chosen among candidates once these are finished: `best_of`, or beam search.
        They cannot be rewound."""
        return self.num_candidates > self.num_outputs or bool(self.extra.get("use_beam_search"))

    @property
    def uses_tools(self) -> bool:
        """Whether the model may call any."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def tool_names(self) -> frozenset[str]:
        """What the caller named the tools; `functions` are what they were called once."""
        functions = self.extra.get("functions")
        named: list[Any] = [*functions] if isinstance(functions, list | tuple) else []
        for tool in self.tools:
            named += (tool, tool.get(str(tool.get("type"))))
        names = [one.get("name") for one in named if isinstance(one, Mapping)]
        return frozenset(name for name in names if isinstance(name, str))


class TopLogprob(NamedTuple):
    """One alternative that a token was drawn against."""

    id: int | None
    raw: bytes
    logprob: float


class Token(NamedTuple):
    """One generated token (or prompt token, on the `echo` channel).

    A token arrives with the text that it completes, never before (contract 2.4). A token without text of its
    own belongs to the next token that has some: the two bytes of a split character, a special token, or
    tokens whose text an upstream does not tell apart (contract 3.11).
    """

    id: int | None
    """None: not told, or not to be told (the token that a stop string cut short)."""
    text: str
    """What it adds to the output's text. Whole characters."""
    raw: bytes = b""
    """The token's own bytes, as the vocabulary has them, special tokens included."""
    logprob: float | None = None
    """Natural logarithm, finite. None: not asked for, or there is none (the first token of a prompt)."""
    top: tuple[TopLogprob, ...] = ()
    """Most likely first."""
    position: int | None = None
    """Which of its output's tokens it is, or is made of, from 0: what a `Rewind` counts. Told where an answer
    can be rewound (`engine.rewindable`), and never to clients."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Which tool call a `tool_call` delta belongs to."""

    index: int
    name: str
    id: str | None = None
    """An upstream's own, to tell its calls apart. A client gets one of the service's making."""


@dataclass(slots=True)
class Usage:
    """Token counts of a whole request, so far. Never changed once made, like a `Delta`."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that needed not be computed, since an earlier prompt or output began alike."""
    reasoning_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Delta:
    """One streamed piece of one output.

    Never changed once made, but not frozen: one is made for every token, and that would take three times as
    long.

    If `tokens` is not empty, the tokens' texts joined are `text`. An output's last delta, and only that,
    has a `finish_reason`.
    """

    index: int = 0
    """Which output."""
    text: str = ""
    tokens: tuple[Token, ...] = ()
    channel: Channel = "content"
    tool_call: ToolCall | None = None
    """Given on every delta of the `tool_call` channel, and on no other."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string, the stop token's id or the guard's reason that ended the output."""
    prompt_token_ids: tuple[int, ...] | None = None
    """On an output's first delta, if the engine knows them."""
    usage: Usage | None = None
    """Running totals of the request, from engines that count."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Take an output back to its first `num_tokens` tokens, and let it go on otherwise.

    Sent to `Engine.generate` in answer to a delta of that output, by `asend`. What the engine said of later
    tokens is void, also that the output ended; its next deltas go on from there.
    """

    index: int
    """Which output."""
    num_tokens: int
    """Its tokens that stand."""
    banned: tuple[int, ...] | None = None
    """Token ids that must not come next, beside those banned there before. None: the one that stood there."""


Deltas = AsyncGenerator[Delta, Rewind | None]
"""An answer as it comes. What may be sent to it is for engines that can rewind; others pass over it."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What an engine serves."""

    max_model_len: int | None = None
    """Longest prompt and output together, in tokens. None: not known."""
    vocab_size: int | None = None
    names: tuple[str, ...] = ()
    """Names that the engine itself answers to, if it says so: an upstream's."""
    parses_tool_calls: bool = True
    """Whether the engine tells tool calls from content by itself, or may: an upstream. False: they are in the
    content, for a parser to find."""
    can_rewind: bool = False
    """Whether a `Rewind` may be sent to its answers, but for `GenerationRequest.is_searched`."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges, counters and histograms that the engine keeps; counters end in `_total`."""

    num_running: int = 0
    num_waiting: int = 0
    prompt_tokens_total: int = 0
    generation_tokens_total: int = 0
    aborted_total: int = 0
    steps_total: int = 0
    preemptions_total: int = 0
    prefix_cache_queries_total: int = 0
    """Prompt tokens that were looked for in the cache; `hits` were found there."""
    prefix_cache_hits_total: int = 0
    kv_blocks_used: int = 0
    """In use; what is only cached does not count."""
    kv_blocks: int = 0
    spec_decode_drafts_total: int = 0
    spec_decode_draft_tokens_total: int = 0
    spec_decode_accepted_tokens_total: int = 0
    """Of the drafts' tokens, those that were what was drawn."""
    step_seconds: Mapping[str, Histogram] = field(default_factory=dict)
    """Wall time of a step's phases, by phase. Histograms go on counting."""
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    """By name."""

    @property
    def kv_cache_usage(self) -> float:
        """Share of the key-value cache in use, from 0 to 1."""
        return self.kv_blocks_used / self.kv_blocks if self.kv_blocks else 0.0


class Tokenizer(Protocol):
    """What the service needs of a tokenizer: for `/tokenize` and `/detokenize`, and to show prompts of token
    ids to hooks."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]]) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str:
        """All of the ids, special tokens included, as text."""

    def raw(self, token_id: int) -> bytes:
        """The token's own bytes (`Token.raw`)."""


class Engine(Protocol):
    """Turns requests into streams. One real method, plus close."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None for engines that have none of their own."""

    async def start(self) -> None:
        """Get ready to serve; returns when it is. Raises what keeps it from serving."""

    def generate(self, request: GenerationRequest) -> Deltas:
        """Yield the request's deltas, outputs interleaved as they come.

        Nothing runs until it is iterated; closing it cancels the work. Raises `RequestError` before the
        first delta for what the caller got wrong, and `EngineError` for what is the engine's fault.
        """

    def stats(self) -> EngineStats: ...

    def check_health(self) -> None:
        """Raise `EngineError` if the engine can no longer serve."""

    async def aclose(self) -> None:
        """Abort what runs and let go of everything."""


class RequestError(ValueError):
    """The caller's fault. The message is for the caller; `param` names the field.

    `unquoted`: of one in another server's words, the same in ours, for a caller who may have only what hooks
    were shown.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        unquoted: "RequestError | None" = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status
        self.unquoted = unquoted


class EngineError(RuntimeError):
    """The engine's fault. The message may go to the caller, so it holds no model output and no internals."""

    def __init__(self, message: str, *, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class LogitsProcessorError(EngineError):
    """A logits processor failed its request, closed (contract 7.6). `processor` names it; the message names
    nothing."""

    def __init__(self, processor: str) -> None:
        super().__init__("A logits processor failed, so the request was ended.")
        self.processor = processor


class QueueFullError(EngineError):
    """Too many requests wait already (HTTP 429). `unquoted`: as `RequestError` has it."""

    def __init__(
        self,
        message: str = "The engine's queue is full; try again later.",
        *,
        unquoted: "QueueFullError | None" = None,
    ) -> None:
        super().__init__(message, status=429)
        self.unquoted = unquoted
