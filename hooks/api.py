"""What a hook gets and gives: `Chunk` in, `Verdict` out. These are the public names; `hooks` exports them."""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from engine.protocol import Channel, GenerationRequest, Token

Span = tuple[int, int, str] | tuple[int, int, str, str]
"""`(start, end, replacement)`: characters `start` up to `end` of `Chunk.pending` become `replacement`. A
reason may follow, which nobody but `on_decision` is told."""


class Verdict:
    """What a hook says of everything pending: `emit`, `suppress`, `terminate`, `rewind`, `hold`, `redact`."""

    __slots__ = ()


class Emit(Verdict):
    """Release `text` for everything pending (contract 3.1).

    If it equals `Chunk.pending`, text, token ids and logprobs are released untouched; if not, it is a
    rewrite, and the rewritten text's tokens are withheld (contract 3.6). `alternatives=False` withholds the
    top alternatives of what is released, which can name what the text does not.
    """

    # Made for almost every chunk, so it is not a dataclass, which would be slower to make.
    __slots__ = ("alternatives", "text")

    def __init__(self, text: str, *, alternatives: bool = True) -> None:
        self.text = text
        self.alternatives = alternatives

    def __repr__(self) -> str:
        return f"Emit({self.text!r}, alternatives={self.alternatives})"


@dataclass(frozen=True, slots=True)
class Suppress(Verdict):
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Terminate(Verdict):
    reason: str
    after: int | None = None
    text: str | None = None
    scope: Literal["request", "output"] = "request"
    alternatives: bool = True


@dataclass(frozen=True, slots=True)
class Rewind(Verdict):
    reason: str
    ban: tuple[int, ...] | None = None
    after: int | None = None
    text: str | None = None
    scope: Literal["request", "output"] = "request"
    alternatives: bool = True

    @property
    def instead(self) -> Terminate:
        """Where there is no going back."""
        return Terminate(self.reason, self.after, self.text, self.scope, self.alternatives)


@dataclass(frozen=True, slots=True)
class Hold(Verdict):
    n: int | None = None
    alternatives: bool = True


@dataclass(frozen=True, slots=True)
class Redact(Verdict):
    spans: tuple[Span, ...]
    hold: int = 0
    alternatives: bool = True


emit = Emit  # the class itself, where the others are functions: a call less for almost every chunk


_SUPPRESS = Suppress()


def suppress(reason: str | None = None) -> Verdict:
    """Withhold everything pending, on every channel, for good (contract 3.2).

    Nobody but `on_decision` is told the reason.
    """
    return _SUPPRESS if reason is None else Suppress(reason)


def terminate(
    reason: str,
    *,
    after: int | None = None,
    text: str | None = None,
    scope: Literal["request", "output"] = "request",
    alternatives: bool = True,
) -> Verdict:
    """Withhold everything pending, end the request and cancel the engine's work (contract 3.3).

    The client gets `finish_reason: content_filter` and `stop_reason: reason`. `after=k` first releases the
    first `k` characters pending, untouched; `text` is then delivered as a closing text, which later hooks
    see; `scope="output"` ends this choice alone. `alternatives`: as `emit` has it, of what is released.
    """
    return Terminate(reason, after, text, scope, alternatives)


def rewind(
    reason: str,
    *,
    ban: Iterable[int] | None = None,
    after: int | None = None,
    text: str | None = None,
    scope: Literal["request", "output"] = "request",
    alternatives: bool = True,
) -> Verdict:
    """Withhold everything pending, and have the model go on otherwise from the last token released.

    The client sees one unbroken stream. What must not come there is the token that did, or those of the ids
    `ban`. `after=k` first releases the first `k` characters pending, untouched. The output's streams get
    their last call, aborted (contract 2.6), and new ones are shown what stands from its beginning.

    It is `terminate(reason, after=after, text=text, scope=scope)` where the engine cannot go back, where
    there is nothing to take back, and once the request was rewound `max_rewinds` times. It is for hooks with
    a true attribute `may_rewind`; from others it is a hook error. `alternatives`: as `emit` has it.
    """
    return Rewind(reason, None if ban is None else tuple(ban), after, text, scope, alternatives)


def hold(n: int | None = None, *, alternatives: bool = True) -> Verdict:
    """Release all pending but its last `n` characters; they stay undecided. None: all (contract 3.4).

    On a final chunk there is nothing left to wait for: holding is then a hook error. `alternatives`: as
    `emit` has it, of what is released.
    """
    return Hold(n, alternatives)


def redact(spans: Iterable[Span], *, hold: int = 0, alternatives: bool = True) -> Verdict:
    """Replace each span of `Chunk.pending`, release the text outside untouched (contract 3.5).

    The last `hold` characters stay undecided; no span may reach into them. Spans that overlap or are out of
    range are a hook error. `alternatives`: as `emit` has it, of what is released.
    """
    return Redact(tuple(spans), hold, alternatives)


class StreamContext:
    """What one hook's chunks of one stream have in common: which stream it is, its text, the hook's state.

    A stream is one channel of one output of one request; each tool call is a stream of its own.
    """

    __slots__ = (
        "_joined",
        "_num_joined",
        "channel",
        "output_index",
        "pieces",
        "request",
        "state",
        "tool_name",
    )

    def __init__(
        self,
        request: GenerationRequest,
        output_index: int = 0,
        channel: Channel = "content",
        tool_name: str | None = None,
    ) -> None:
        self.request = request
        self.output_index = output_index
        self.channel = channel
        self.tool_name = tool_name
        self.pieces: list[str] = []
        """The text that the hook was shown, as it was shown. Only appended to."""
        self.state: dict[Any, Any] = {}
        self._joined = ""
        self._num_joined = 0

    def text(self, num_pieces: int) -> str:
        """The first so many pieces. Joined when it is read, and what was joined is kept for the next time."""
        if num_pieces < self._num_joined:
            return "".join(self.pieces[:num_pieces])
        if num_pieces > self._num_joined:
            self._joined += "".join(self.pieces[self._num_joined : num_pieces])
            self._num_joined = num_pieces
        return self._joined


class Chunk:
    """One piece of one stream, as a hook is shown it (contract 2). Read it; never change it.

    Chunks of a stream come in order, one at a time, and exactly one of them, the last, has `is_final`.
    """

    __slots__ = ("_context", "_held", "_num_shown", "_tokens", "aborted", "is_final", "text_diff")

    def __init__(
        self,
        context: StreamContext,
        text_diff: str,
        tokens: tuple[Token, ...] = (),
        is_final: bool = False,
        aborted: bool = False,
        held: tuple[list[str], int] | None = None,
    ) -> None:
        """The context's pieces already end in `text_diff`. `held`: pieces of which the first so many are this
        hook's undecided text."""
        self.text_diff = text_diff
        """The new part of `text`. Whole characters."""
        self.is_final = is_final
        """The last call for this stream. It may carry text or be empty."""
        self.aborted = aborted
        """The stream ended before its time: nothing of this chunk reaches a client, whatever the verdict."""
        self._context = context
        self._tokens = tokens
        self._num_shown = len(context.pieces)
        self._held = held

    @property
    def state(self) -> dict[Any, Any]:
        """This hook's own, for this stream; dropped with it."""
        return self._context.state

    @property
    def request(self) -> GenerationRequest:
        """The request, read-only: `endpoint`, `model`, `messages` or `prompts`, `user`, `metadata`."""
        return self._context.request

    @property
    def request_id(self) -> str:
        return self._context.request.request_id

    @property
    def streaming(self) -> bool:
        """Whether the client asked for a stream. The chunks are the same either way (contract 2.5)."""
        return self._context.request.stream

    @property
    def output_index(self) -> int:
        return self._context.output_index

    @property
    def channel(self) -> Channel:
        return self._context.channel

    @property
    def tool_name(self) -> str | None:
        """The called function's name, on the `tool_call` channel."""
        return self._context.tool_name

    @property
    def text(self) -> str:
        """All of this stream's text that this hook has been shown so far. Joined when read."""
        return self._context.text(self._num_shown)

    @property
    def pending(self) -> str:
        """What the verdict is about: the text that this hook holds, and `text_diff`."""
        if self._held is None:
            return self.text_diff
        pieces, count = self._held
        return "".join(pieces[:count]) + self.text_diff

    @property
    def token_ids_diff(self) -> tuple[int, ...]:
        """Ids of the tokens completed by `text_diff`; empty where the engine gives none."""
        return tuple(t.id for t in self._tokens if t.id is not None)

    @property
    def logprobs_diff(self) -> tuple[Token, ...]:
        """The tokens completed by `text_diff` that have a logprob, with their top alternatives."""
        return tuple(t for t in self._tokens if t.logprob is not None)

    def __repr__(self) -> str:
        # Never the text: a repr ends up in logs.
        return (
            f"<Chunk {self.request_id}/{self.output_index}/{self.channel} "
            f"+{len(self.text_diff)} characters{', final' if self.is_final else ''}>"
        )


class Hook(Protocol):
    """A hook: built once per process, called with every chunk. `__call__` may be `async` (contract 1.2).

    One with a method `on_request`, which may be `async` too, is shown every request before the engine, its
    prompts as text. It returns the request as it should go on, of which
    `hooks.prompts.texts.PROMPT_FIELDS` and
    `sampling.stop` may be others, or `refuse(reason)`.

    One with a number as its attribute `max_hold` says that it never leaves more characters undecided: `weir
    hooks fuzz` holds it to that. One with a true attribute `may_rewind` may say `rewind`: text then leaves in
    whole tokens.

    One with a method `on_decision` is told every `Decision` of the requests that it runs for, of whichever
    hook, before anything that comes of it gets out; if it raises, the request fails as in a call. One with a
    method `close`, which may be `async`, has it called when nothing is left to serve.
    """

    def __call__(self, chunk: Chunk, /) -> Verdict | Awaitable[Verdict]: ...


PostProcessorHookChunk = Chunk
PostProcessorHookVerdict = Verdict
PostProcessorHook = Hook
