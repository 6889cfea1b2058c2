"""The seam between an engine and the rest of Weir: values only, no torch, no HTTP.

An `Engine` takes a `GenerationRequest` and yields `Delta`s:

    async with aclosing(engine.generate(request)) as deltas:
        async for delta in deltas:
            print(delta.text)

All values that cross the seam are immutable. Closing the iterator cancels the engine's work on the request.
Sending a `Rewind` into it rewinds an output to an earlier token. Weir's own engines feed deltas by calls
(`engine.protocol.flow`).
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from engine.protocol.errors import CallerLimitError as CallerLimitError
from engine.protocol.errors import DeadEngineError as DeadEngineError
from engine.protocol.errors import EngineError as EngineError
from engine.protocol.errors import LogitsProcessorError as LogitsProcessorError
from engine.protocol.errors import QueueFullError as QueueFullError
from engine.protocol.errors import RequestError as RequestError
from engine.protocol.errors import ShutdownError as ShutdownError
from engine.protocol.errors import TextTooLongError as TextTooLongError
from engine.protocol.fields.sampling_params import SamplingParams as SamplingParams
from engine.protocol.fields.support import FieldSupport
from engine.protocol.probe_info import Calibration as Calibration
from engine.protocol.probe_info import ProbeInfo as ProbeInfo
from engine.protocol.probe_info import PromptScores as PromptScores
from engine.protocol.probe_info import Scores as Scores
from engine.protocol.probe_info import Smoothing as Smoothing
from engine.protocol.stats import EngineStats as EngineStats
from engine.protocol.usage import Usage as Usage

Channel = Literal["content", "reasoning", "tool_call", "echo"]
"""A text stream of an output. `echo` is the prompt, or the message that a chat continues, if asked for."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The roles of a chat's messages, as the API names them."""

Prompt = str | tuple[int, ...]
"""A text, or its token ids."""


Endpoint = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "rerank", "score", "moderations", "guard"
]

_PROMPT_FIELDS = {"completions": "prompt", "rerank": "documents", "score": "text_1"}
_PROMPT_FIELDS |= dict.fromkeys(("responses", "embeddings", "moderations"), "input")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One request of a caller: all of one HTTP request.

    A request for completions has `prompts`, and each prompt gets `sampling.n` outputs. Output `p * n + i` is
    the i-th output of prompt p. A chat, on three endpoints, has `messages`. Embeddings, ranks and scores have
    `prompts` and no output (`engine.protocol.relay`). No engine gets a request for moderations, or one of
    another gateway (`guard`): hooks judge its texts, which are `prompts`, `messages`, or outputs.
    """

    request_id: str
    model: str
    """The model's name, as the caller gave it."""
    endpoint: Endpoint
    messages: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Prompt, ...] = ()
    sampling: SamplingParams = SamplingParams()  # noqa: RUF009 (it is frozen)
    given: frozenset[str] = frozenset()
    """Names of the fields that the caller set, even to a default: an upstream may have other defaults."""
    echo: bool = False
    """Begin each output with its prompt on the `echo` channel. It has logprobs if the output has. For a chat
    no engine acts on it (`engine.text.chat_echo`)."""
    return_token_ids: bool = False
    """The caller wants token ids. Weir's own engine always gives them; an upstream must be asked."""
    cache_salt: str | None = field(default=None, repr=False)
    """Prompts share cached tokens only with requests of the same salt, or if None, without a salt."""
    num_unsalted_tokens: int = 0
    """Tokens at the beginning of each prompt that are shared whatever the salt is. If it is not 0, requests
    of the same salt share outputs too. A caller never sets it; engines elsewhere ignore it."""
    priority: int = 0
    """An engine that schedules by priority serves lower numbers first."""
    stream: bool = False
    """Whether the caller wants a stream. The engine's deltas are the same either way."""
    hooks: tuple[str, ...] = ()
    """Additional hooks to run, from the list that the server lets a request name."""
    caller: str = field(default="", repr=False)
    """Identifies the caller: callers share the service equally. A digest, which no client sees and no client
    chooses (unlike `user`). It changes with each start of the service."""
    user: str | None = None
    """The end user's identity, as the caller gave it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the caller's JSON that have no field here (see `engine.protocol.fields`)."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools that the model may call, as in the API: `{"type": "function", "function": {"name": ...}}`."""
    tool_choice: str | Mapping[str, Any] | None = None
    """`none`, `auto`, `required`, or the API's form of a function's name. None means `auto`."""
    parallel_tool_calls: bool = True
    """Whether one output may make more than one call."""
    caller_body: Mapping[str, Any] | None = field(default=None, repr=False)
    """The caller's JSON, if it is of the Messages API: its fields and their blocks in the caller's order,
    with the changes of hooks in `system`, `messages` and `tools`. An upstream of that API gets these as they
    are. The service sets it once hooks have decided; they never see it."""
    steers_end: bool = False
    """Whether a field of the caller may choose the place of an end that the engine calls the model's own
    (`engine.protocol.fields.asked`). The service sets it."""
    taint: str | None = None
    """Why the prompt is not to be trusted, such as that it holds a tool's result. A hook sets it for other
    hooks (contract 8.15); engines ignore it."""

    @property
    def is_chat(self) -> bool:
        """Whether the request has `messages`."""
        return self.endpoint in ("chat", "responses", "messages", "guard")

    @property
    def prompt_field(self) -> str:
        """The field of the caller's JSON that holds the prompt."""
        return _PROMPT_FIELDS.get(self.endpoint, "messages")

    @property
    def returns_prompt(self) -> bool:
        """Whether an engine begins each output with its whole prompt on the `echo` channel."""
        return self.sampling.prompt_logprobs is not None or (self.echo and not self.is_chat)

    @property
    def num_prompt_logprobs(self) -> int | None:
        """Top alternatives for each token of the prompt that is returned. None: no logprobs."""
        echoed = self.sampling.logprobs if self.echo and not self.is_chat else None
        wanted = [num for num in (self.sampling.prompt_logprobs, echoed) if num is not None]
        return max(wanted, default=None)

    @property
    def num_outputs(self) -> int:
        return self.sampling.n * max(1, len(self.prompts))

    @property
    def num_candidates(self) -> int:
        """Candidates to generate for all prompts. `num_outputs` of them become outputs."""
        return self.sampling.num_candidates * max(1, len(self.prompts))

    @property
    def is_searched(self) -> bool:
        """Whether outputs are chosen from finished candidates (`best_of`, beam search), and cannot rewind."""
        return self.num_candidates > self.num_outputs or bool(self.extra.get("use_beam_search"))

    @property
    def is_guided(self) -> bool:
        """Whether the outputs may have to follow a grammar."""
        named = {"response_format", "structured_outputs", *(n for n in self.extra if n.startswith("guided_"))}
        is_forced = self.uses_tools and self.tool_choice not in (None, "auto")
        return is_forced or any(self.extra.get(name) not in (None, False, {"type": "text"}) for name in named)

    @property
    def uses_tools(self) -> bool:
        """Whether the model may call a tool."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def tool_names(self) -> frozenset[str]:
        """The names of the tools, and of `functions`, the API's older form of them."""
        functions = self.extra.get("functions")
        named: list[Any] = [*functions] if isinstance(functions, list | tuple) else []
        for tool in self.tools:
            named += (tool, tool.get(str(tool.get("type"))))
        names = [one.get("name") for one in named if isinstance(one, Mapping)]
        return frozenset(name for name in names if isinstance(name, str))


class TopLogprob(NamedTuple):
    """One of the most likely tokens at a position."""

    id: int | None
    raw: bytes
    logprob: float


class Token(NamedTuple):
    """One generated token, or on the `echo` channel a token of the prompt.

    A token comes with the text that it completes, never earlier (contract 2.4). A token without text belongs
    to the next token with text. It may be the first byte of a split character, a special token, or a token
    whose text the upstream joined with the next token's text (contract 3.11).
    """

    id: int | None
    """None: the engine does not say it, or nobody may know it (the token that a stop string cuts)."""
    text: str
    """The text that the token adds to the output. Whole characters."""
    raw: bytes = b""
    """The token's bytes in the vocabulary. Special tokens have bytes too."""
    logprob: float | None = None
    """Natural logarithm, finite. None: not asked for, or the token has none (the first token of a prompt)."""
    top: tuple[TopLogprob, ...] = ()
    """The top alternatives, the most likely first, or those of `SamplingParams.logprob_token_ids`."""
    position: int | None = None
    """The token's place among its output's tokens, from 0, for `Rewind.num_tokens`. Parts of a token have the
    whole token's place. `engine.streams.rewindable` sets it. Clients never see it."""
    rank: int | None = None
    """The number of tokens of the vocabulary that are at least as likely here, this one included. Only tokens
    of a prompt have it, and only if the engine says it."""
    scores: Scores | None = None
    """The scores that the model's probes give this token, in the order of `ModelInfo.score_names`. None: the
    engine has no probes, or the scores belong to another part of this token. Clients never see them."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The tool call that a `tool_call` delta belongs to. The calls of an output come one after another."""

    index: int
    name: str
    id: str | None = None
    """The upstream's id of the call. A client gets an id that the service makes."""


@dataclass(slots=True)
class Delta:
    """One streamed piece of one output.

    If `tokens` is not empty, the tokens' texts joined are `text`. Only the last delta of an output has a
    `finish_reason`.

    A delta never changes once it is made. The class is not frozen, because each token needs a delta, and a
    frozen one takes three times as long to make. One with fields by keyword only takes twice as long.
    """

    index: int = 0
    """The output's number."""
    text: str = ""
    tokens: tuple[Token, ...] = ()
    channel: Channel = "content"
    tool_call: ToolCall | None = None
    """Set on every delta of the `tool_call` channel, and on no other."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string, the stop token's id or the guard's reason that ended the output."""
    prompt_token_ids: tuple[int, ...] | None = None
    """The prompt's ids, on an output's first delta, if the engine knows them."""
    prompt_scores: PromptScores | None = None
    """The scores of the prompt's tokens, on an output's first delta, if the model has probes. Clients never
    see them."""
    usage: Usage | None = None
    """The request's totals so far, if the engine counts."""
    is_cut: bool = False
    """On an output's last delta: nothing says that the model itself ended the output."""
    is_blocked: bool = False
    """On an output's last delta: a hook ended the output."""

    @property
    def num_output_tokens(self) -> int:
        """The generated tokens. Tokens of an echoed prompt do not count."""
        return 0 if self.channel == "echo" else len(self.tokens)


@dataclass(frozen=True, slots=True)
class Rewind:
    """Rewinds an output to its first `num_tokens` tokens, and has it continue differently.

    A reader sends it to the iterator of `Engine.generate` by `asend`, in answer to a delta of this output.
    Deltas of later tokens become void, even the output's end. The output's next deltas continue behind the
    kept tokens. If no other token may come there, the next delta ends the output with the finish reason
    `content_filter`, without a token.
    """

    index: int
    """The output's number."""
    num_tokens: int
    """Tokens of the output that are kept."""
    banned: tuple[int, ...] | None = None
    """Token ids that must not come next, beside those banned here before. None: the withdrawn token's id."""


Deltas = AsyncGenerator[Delta, Rewind | None]
"""An answer as it comes. An engine that cannot rewind ignores a `Rewind`."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that an engine serves."""

    max_model_len: int | None = None
    """Most tokens of a prompt and its output together. None: not known."""
    vocab_size: int | None = None
    names: tuple[str, ...] = ()
    """The model names that an upstream answers to. Empty for other engines."""
    parses_tool_calls: bool = True
    """Whether the engine puts tool calls on their channel, or may (an upstream). False: a parser has to find
    them in the content."""
    can_rewind: bool = False
    """Whether the engine accepts a `Rewind`, except for requests with `GenerationRequest.is_searched`."""
    can_rewind_guided: bool = True
    """Whether the engine also accepts a `Rewind` for requests with `GenerationRequest.is_guided`."""
    max_prompt_bytes: int | None = None
    """A longer text has more than `max_model_len` tokens, whatever it is. None: not known."""
    probes: tuple[ProbeInfo, ...] = ()
    """The probes that score every token that the model reads."""
    eos_token_ids: frozenset[int] | None = None
    """The ids by which the model ends an output. None: not known."""

    @property
    def score_names(self) -> tuple[str, ...]:
        """The names of the scores in `Token.scores`, in order."""
        return tuple(name for probe in self.probes for name in probe.score_names)

    def can_rewind_for(self, request: GenerationRequest) -> bool:
        """Whether the engine accepts a `Rewind` for this request."""
        if not self.can_rewind or request.is_searched:
            return False
        return self.can_rewind_guided or not request.is_guided


class TextTokens(NamedTuple):
    """The tokens of a text in which no token is special."""

    ids: list[int]
    ends: list[int]
    """For each token, the characters of the text that are whole at its end. Never decreases."""
    words: list[int]
    """For each token, the number of its word: the part of the text that the tokenizer reads by itself."""


class Tokenizer(Protocol):
    """The part of a tokenizer that the service and guard models use."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def encode_chat(self, request: GenerationRequest, *, add_special_tokens: bool = False) -> list[int]:
        """The ids of the prompt that the request's messages and tools make."""

    def encode_text(self, text: str) -> TextTokens:
        """The tokens of an untrusted text: the name of a special token in it is plain text. Raises
        `ValueError` if the tokenizer reads such a name as the special token."""

    def chat_text(self, request: GenerationRequest) -> str:
        """The prompt that the request's messages and tools make, as text. Raises `RequestError`."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, with special tokens."""

    def raw(self, token_id: int) -> bytes:
        """The token's bytes in the vocabulary (`Token.raw`)."""

    def string(self, token_id: int) -> str:
        """The token's entry in the vocabulary, such as `Ġsky`. Empty if no token has this id."""


class Engine(Protocol):
    """Turns requests into streams of deltas. A new engine is a folder beside `engine.upstream`."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def fields(self) -> FieldSupport:
        """The engine's treatment of each field of a request."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None if the engine has no tokenizer."""

    async def start(self) -> None:
        """Get ready to serve, and return when ready. Raises the error that prevents it."""

    def generate(self, request: GenerationRequest) -> Deltas:
        """Yield the request's deltas as they come. Deltas of several outputs are mixed.

        No work begins before the first iteration, and closing the iterator cancels the work. Raises
        `RequestError` before the first delta if the caller is at fault, and `EngineError` if the engine is.
        """

    def stats(self) -> EngineStats: ...

    def check_room(self, caller: str) -> None:
        """Raise `QueueFullError` if this caller may not add a request now. `generate` checks it again."""

    def check_health(self) -> None:
        """Raise `EngineError` if the engine can no longer serve."""

    async def aclose(self) -> None:
        """Abort all requests and free all resources."""
