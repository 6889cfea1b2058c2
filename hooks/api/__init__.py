"""The interface of a hook: a `Chunk` in, a `Verdict` out. `hooks` exports these public names."""

from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

from engine.protocol.tracing import CURRENT_SPAN
from hooks.api.chunk import Chunk as Chunk
from hooks.api.chunk import StreamContext as StreamContext
from hooks.api.decision import Action, Change


class Restored(NamedTuple):
    """A span of `redact` whose replacement is a value of the caller's own that comes back (contract 3.18).

    Its decision is `restore`, and has neither the value nor the text in its place. The value's tokens are
    withheld. An empty span means that a value of the caller's passes untouched from `start` on.
    """

    start: int
    end: int
    replacement: str
    reason: str


Span = tuple[int, int, str] | tuple[int, int, str, str] | Restored
"""`(start, end, replacement)`: characters `start` up to `end` of `Chunk.pending` become `replacement`. A
fourth item may give a reason, for `on_decision` and moderations (contract 3.13)."""

Scope = Literal["request", "output"]


class Verdict:
    """A hook's decision on the pending text: `emit`, `suppress`, `hold`, `redact`, `terminate`, `rewind`,
    `suspect` or `ask`.

    Hooks call these classes like functions, so their names are in lower case.
    """

    __slots__ = ()

    def changes(self, pending: str) -> Iterable[Change]:
        """The changes that the verdict makes to the pending text, without releasing and holding it."""
        return ()


@dataclass(slots=True, unsafe_hash=True)
class Note(Verdict):
    """Releases the pending text untouched, and notes something about it. `alternatives`, `unjudged`: see
    `emit`."""

    action: ClassVar[Action]
    reason: str
    _: KW_ONLY
    alternatives: bool = True
    unjudged: int | None = 0

    def changes(self, pending: str) -> Iterable[Change]:
        return (Change(self.action, 0, 0, reason=self.reason),)


@dataclass(slots=True, unsafe_hash=True)
class emit(Verdict):
    """Release `text` in place of the pending text (contract 3.1).

    If `text` equals `Chunk.pending`, text, token ids and logprobs are released untouched. If not, it is a
    rewrite, and the rewritten text's tokens are withheld (contract 3.6). `alternatives=False` also withholds
    the top alternatives of the released tokens, which can name words that the text does not.

    `unjudged` (contract 3.17): characters at the end of all text that this hook has released of the stream,
    this text included, that no verdict of its judge covers yet. None: the judge is not asked about the text
    released now. Only hooks with a true attribute `judges` may give it.
    """

    # Almost every chunk makes an `emit` or a `hold`. A frozen one would take three times as long to make.
    text: str
    _: KW_ONLY
    alternatives: bool = True
    unjudged: int | None = 0

    def changes(self, pending: str) -> Iterable[Change]:
        return () if self.text == pending else (Change("rewrite", 0, len(pending), self.text),)


@dataclass(frozen=True, slots=True)
class suppress(Verdict):
    """Withhold the pending text for good, on every channel (contract 3.2). The reason is for
    `on_decision` and moderations (contract 3.13). `after`, `spans`, `alternatives`: as in `terminate`."""

    reason: str | None = None
    _: KW_ONLY
    after: int | None = None
    alternatives: bool = True
    spans: Iterable[Span] = ()
    """Held as a tuple."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self.spans))

    def changes(self, pending: str) -> Iterable[Change]:
        end = Change("suppress", self.after or 0, len(pending), reason=self.reason)
        return [*map(_span_change, self.spans), end]


@dataclass(slots=True, unsafe_hash=True)
class hold(Verdict):
    """Release all pending text but its last `n` characters, which stay undecided (contract 3.4).

    `n=None` holds everything. On a final chunk there is nothing left to wait for, so holding text there is a
    hook error. `alternatives`, `unjudged`: as in `emit`, for the released part.
    """

    n: int | None = None
    _: KW_ONLY
    alternatives: bool = True
    unjudged: int | None = 0


@dataclass(slots=True, unsafe_hash=True, init=False)
class redact(Verdict):
    """Replace each span of `Chunk.pending`, and release the text outside the spans untouched (contract 3.5).

    The last `hold` characters stay undecided; no span may reach into them. Spans that overlap or are out of
    range are a hook error. `alternatives`, `unjudged`: as in `emit`, for the released part.
    """

    spans: tuple[Span, ...]
    hold: int
    alternatives: bool
    unjudged: int | None

    def __init__(
        self, spans: Iterable[Span], *, hold: int = 0, alternatives: bool = True, unjudged: int | None = 0
    ) -> None:
        self.spans = tuple(spans)
        self.hold = hold
        self.alternatives = alternatives
        self.unjudged = unjudged

    def changes(self, pending: str) -> Iterable[Change]:
        return [*map(_span_change, self.spans)]


def _span_change(span: Span) -> Change:
    return Change("restore" if isinstance(span, Restored) else "redact", *span)


@dataclass(slots=True, unsafe_hash=True)
class suspect(Note):
    """Release the pending text untouched, and mark the request as suspect for the hooks after this one
    (contract 3.16).

    From this chunk on, they find the reason in `Chunk.suspicion`, for every output of the request.
    """

    action = "suspect"


@dataclass(slots=True, unsafe_hash=True)
class ask(Note):
    """Release the pending arguments of a tool call untouched, and have a person decide on the call (contract
    3.21). The call waits for the person, and only the call. `text` ends the answer if the person refuses it.
    """

    action = "ask"
    text: str | None = None


@dataclass(frozen=True, slots=True)
class terminate(Verdict):
    """Withhold the pending text, end the request and cancel the engine's work (contract 3.3).

    The client gets `finish_reason: content_filter` and `stop_reason: reason`. `after=k` first releases the
    first `k` pending characters; `spans` are replaced in them, as `redact` does. `text` is then delivered as
    a closing text, at the end of the content, which later hooks see. `scope="output"` ends this choice alone.
    `alternatives`, `unjudged`: as in `emit`, for the released part.
    """

    reason: str
    _: KW_ONLY
    after: int | None = None
    text: str | None = None
    scope: Scope = "request"
    alternatives: bool = True
    unjudged: int | None = 0
    spans: Iterable[Span] = ()
    """Held as a tuple."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self.spans))

    def changes(self, pending: str) -> Iterable[Change]:
        end = Change("terminate", self.after or 0, len(pending), self.text or "", self.reason)
        return [*map(_span_change, self.spans), end]


@dataclass(frozen=True, slots=True)
class rewind(Verdict):
    """Withhold the pending text, and have the model continue differently from the last released token
    (contract 8.3).

    The client sees one unbroken stream. The model may not repeat the withdrawn token, or the ids in `ban` if
    given. `after=k` first releases the first `k` pending characters; `spans` are replaced in them, as
    `redact` does. The output's streams get their last call, aborted (contract 2.6); new streams are shown the
    kept text from its beginning.

    A rewind acts as `terminate` with the same arguments if the engine cannot go back, if
    no token can be withdrawn, if no other token may come, and after `max_rewinds` rewinds of the request.
    Only hooks with a true attribute `may_rewind` may return it; from any other hook it is a hook error.
    `alternatives`, `unjudged`: as in `emit`.
    """

    reason: str
    _: KW_ONLY
    ban: Iterable[int] | None = None
    """Token ids. Held as a tuple."""
    after: int | None = None
    text: str | None = None
    scope: Scope = "request"
    alternatives: bool = True
    unjudged: int | None = 0
    spans: Iterable[Span] = ()
    """Held as a tuple."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self.spans))
        if self.ban is not None:
            object.__setattr__(self, "ban", tuple(self.ban))

    def changes(self, pending: str) -> Iterable[Change]:
        end = Change("rewind", self.after or 0, len(pending), reason=self.reason)
        return [*map(_span_change, self.spans), end]

    @property
    def as_terminate(self) -> terminate:
        """The verdict that replaces a rewind if the engine cannot go back."""
        return terminate(
            self.reason,
            after=self.after,
            text=self.text,
            scope=self.scope,
            alternatives=self.alternatives,
            unjudged=self.unjudged,
            spans=self.spans,
        )


class PromptTooLongError(ValueError):
    """A hook raises it if the request's prompt is too long for it, such as for its model. The request fails
    closed, and the client's error says that the prompt is at fault (contract 4.4)."""


class Hook(Protocol):
    """A hook: built once per process, called with every chunk. `__call__` may be `async` (contract 1.2).

    A hook may also have:

    - `on_request(request)`, plain or `async`: it sees every request before the engine, the prompts as text,
      and returns the request for the engine, or `refuse(reason)`. It may change `sampling.stop`, `taint` and
      the fields that `hooks.prompts.texts.PROMPT_FIELDS` names (contract 8.1, 8.15). A second argument, as
      in `on_request(request, state)`, is the hook's state for the request (contract 2.12).
    - `on_decision(decision)`: called with every `Decision` of its requests, of any hook, before
      the client receives the result. If it raises, the request fails as in a call (contract 8.2).
    - `on_usage(request, usage)`: called once, after the last calls of a request whose engine reported a
      `Usage` (contract 8.18).
    - `max_hold`, a number: the hook never leaves more characters undecided. `weir hooks fuzz` checks it.
    - `thread_safe = True`: a plain `on_request` may run on another thread, during other calls. A
      prompt that is not short then delays no other request (contract 8.12).
    - `reads_text = False`: the hook reads no `Chunk.text`, so the text of its streams is not kept (contract
      2.15).
    - `needs_probe`, a `ProbeNeeds`: the hook reads scores of this probe (contract 1.10).
    - `may_rewind = True`: the hook may return `rewind`. Text then leaves in whole tokens.
    - `judges = True`: the hook asks a judge, and reports with `unjudged` how much of the released text the
      judge has not judged. Listeners receive it at each stream's end (contract 3.17).
    - `async start(models)`: called once, before the first call, with a `GuardModels` that gives it models
      which judge (contract 1.9).
    - `close()`, plain or `async`: called when nothing is left to serve.
    """

    def __call__(self, chunk: Chunk, /) -> Verdict | Awaitable[Verdict]: ...


def trace_headers() -> Mapping[str, str]:
    """The headers for a service that a hook asks: the service's spans then belong to the request's trace (W3C
    Trace Context). Empty without tracing."""
    return CURRENT_SPAN.get().headers


PostProcessorHookChunk = Chunk
PostProcessorHookVerdict = Verdict
PostProcessorHook = Hook
