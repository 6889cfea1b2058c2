"""The next text of one stream, as a hook is shown it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from engine.protocol import Channel, GenerationRequest, ProbeInfo, PromptScores, Scores, Token
from hooks.prompts.lead import lead_of

NOTHING_KEPT = cast(list[str], deque[str](maxlen=0))
"""Takes texts as a list does, and keeps none."""


CALLER_VALUES = "caller_values"
"""The key of the values that a hook's placeholders stand for, in the hook's state for a request (contract
9.11). A placeholder is in brackets."""


@dataclass(slots=True, eq=False, repr=False)
class StreamContext:
    """One hook's view of one stream: which stream it is, the text shown so far, and the hook's state.

    A stream is one channel of one output of one request; each tool call is a stream of its own.
    """

    request: GenerationRequest
    output_index: int = 0
    channel: Channel = "content"
    tool_name: str | None = None
    prompt_scores: PromptScores | None = None
    place: int = 0
    """The hook's place among the request's hooks, from 0."""
    suspicions: Mapping[int, str] = field(default_factory=dict)
    """The request's first suspicion of each hook that has one, by the hook's place. It grows."""
    request_state: dict[Any, Any] = field(default_factory=dict)
    """The hook's state for the request, which all its streams share."""
    keeps_text: bool = True
    """Whether the hook may read `text`."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The caller's values, by the placeholder that stands for each."""
    text_diffs: list[str] = field(default_factory=list, init=False)
    """The text that the hook was shown: each chunk's `text_diff`. With `keeps_text`, the list only grows."""
    state: dict[Any, Any] = field(default_factory=dict, init=False)
    is_cut: bool = field(default=False, init=False)
    """Whether the stream's last chunk ends it at a place that the client chose. Set before that chunk."""
    _joined: str = field(default="", init=False)
    _num_joined: int = field(default=0, init=False)
    _num_counted: int = field(default=0, init=False)
    """Texts that `count_shown` has counted."""
    _num_shown: int = field(default=0, init=False)

    @property
    def is_own_tool(self) -> bool:
        """Whether the stream is a call of a tool that the request does not have: the model made its name."""
        return bool(self.tool_name) and self.tool_name not in self.request.tool_names

    def count_shown(self) -> int:
        """Characters that the hook was shown. Text that the hook may not read is forgotten here."""
        text_diffs = self.text_diffs
        for i in range(self._num_counted, len(text_diffs)):
            self._num_shown += len(text_diffs[i])
        if not self.keeps_text:
            text_diffs.clear()
        self._num_counted = len(text_diffs)
        return self._num_shown

    def move(self, num_characters: int) -> None:
        """Count characters that the hook was not shown, because others read them in its place. Below 0: the
        hook is shown its last characters again, or others are."""
        self.count_shown()
        self._num_shown += num_characters

    def copied(
        self, suspicions: Mapping[int, str], request_state: dict[Any, Any], state: dict[Any, Any]
    ) -> "StreamContext":
        """The same stream with other states. Both have the same list of texts."""
        of = self.request, self.output_index, self.channel, self.tool_name, self.prompt_scores, self.place
        copied = StreamContext(*of, suspicions, request_state, self.keeps_text, self.values)
        copied.text_diffs, copied.state = self.text_diffs, state
        copied._joined, copied._num_joined = self._joined, self._num_joined
        return copied

    def text(self, num_diffs: int) -> str:
        """The first `num_diffs` of `text_diffs`, joined. The joined text is kept: each one is joined once.
        Raises `RuntimeError` without `keeps_text`."""
        if not self.keeps_text:
            raise RuntimeError("a hook with reads_text = False read the text of a chunk")
        if num_diffs < self._num_joined:
            return "".join(self.text_diffs[:num_diffs])
        if num_diffs > self._num_joined:
            self._joined += "".join(self.text_diffs[self._num_joined : num_diffs])
            self._num_joined = num_diffs
        return self._joined


class Chunk:
    """The next text of one stream, as a hook is shown it (contract 2). A hook reads it and never changes it.

    Chunks of a stream come in order, one at a time, and exactly one of them, the last, has `is_final`.
    """

    __slots__ = (
        "_context",
        "_held",
        "_num_diffs",
        "_tokens",
        "aborted",
        "is_final",
        "num_incomplete",
        "restored_diff",
        "text_diff",
    )

    def __init__(
        self,
        context: StreamContext,
        text_diff: str,
        tokens: tuple[Token, ...] = (),
        is_final: bool = False,
        aborted: bool = False,
        held: tuple[list[str], int] | None = None,
        num_incomplete: int = 0,
        restored_diff: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """The context already has `text_diff`. `held`: a list of texts, and how many of them, from the first,
        are this hook's undecided text."""
        self.text_diff = text_diff
        """The new part of `text`. Whole characters."""
        self.is_final = is_final
        """The last call for this stream. It may carry text or be empty."""
        self.aborted = aborted
        """The stream ended early: no part of this chunk reaches a client, with any verdict."""
        self.num_incomplete = num_incomplete
        """Characters at the end of `text_diff` whose token comes with later text, because a hook before this
        one holds the rest of the token's text (contract 2.4)."""
        self.restored_diff = restored_diff
        """The places in `text_diff`, start and end, at which a hook before this one brought a value of the
        caller's back (contract 2.13)."""
        self._context = context
        self._tokens = tokens
        self._num_diffs = len(context.text_diffs)
        self._held: tuple[list[str], int] | str | None = held
        """Once `pending` was read, the pending text."""

    @property
    def state(self) -> dict[Any, Any]:
        """A dict of this hook's own, for this stream. It is dropped with the stream."""
        return self._context.state

    @property
    def request_state(self) -> dict[Any, Any]:
        """A dict of this hook's own, for this request: `on_request` may take it as its second argument, and
        every stream of the request has it (contract 2.12). It is dropped with the request."""
        return self._context.request_state

    @property
    def caller_values(self) -> Mapping[str, str]:
        """The caller's values that a guard of this request brings back, by placeholder (contract 9.11). Some
        hooks compare the answer with the prompt. Not for a log."""
        return self._context.values

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
    def lead(self) -> str:
        """The text that the output continues (contract 2.8): a completion's prompt, the assistant's
        messages that end a chat, or another last message that the request has the output continue. Mostly
        empty. No verdict reaches it."""
        context = self._context
        return lead_of(context.request, context.output_index, context.channel)

    @property
    def suspicion(self) -> str | None:
        """The reason that a hook before this one gave in a `suspect` for this request, on any output
        (contract 2.11, 3.16). None: no hook has returned one so far."""
        suspicions, place = self._context.suspicions, self._context.place
        return next((reason for by, reason in suspicions.items() if by < place), None)

    @property
    def is_cut(self) -> bool:
        """Whether this is the final chunk, and the client chose the stream's end or may have (contract 2.9):
        at `max_tokens`, at a stop string, or at any end if a field of the client steers the end of
        sequence."""
        return self.is_final and self._context.is_cut

    @property
    def text(self) -> str:
        """All of this stream's text that this hook has been shown so far. Joined when read. A hook with
        `reads_text = False` may not read it (contract 2.15)."""
        return self._context.text(self._num_diffs)

    @property
    def pending(self) -> str:
        """The text that the verdict decides: the text that this hook holds, and `text_diff`."""
        held = self._held
        if held is None:
            return self.text_diff
        if isinstance(held, tuple):
            texts, count = held
            text = texts[0] if count == 1 else "".join(texts[:count])
            held = self._held = text + self.text_diff
        return held

    @property
    def token_ids_diff(self) -> tuple[int, ...]:
        """Ids of the tokens completed by `text_diff`. Empty if the engine gives none."""
        return tuple(t.id for t in self._tokens if t.id is not None)

    @property
    def logprobs_diff(self) -> tuple[Token, ...]:
        """The tokens completed by `text_diff` that have a logprob, with their top alternatives."""
        return tuple(t for t in self._tokens if t.logprob is not None)

    @property
    def tokens_diff(self) -> tuple[Token, ...]:
        """The tokens completed by `text_diff`, each with the text that it completes. Empty if the engine
        gives none, and for text that another hook wrote."""
        return self._tokens

    @property
    def scores_diff(self) -> tuple[Scores | None, ...]:
        """The scores of the tokens of `token_ids_diff`, one entry for each (contract 2.10). None: the token
        has none."""
        return tuple(t.scores for t in self._tokens if t.id is not None)

    @property
    def prompt_scores(self) -> tuple[Scores, ...] | None:
        """The scores of the prompt's tokens, one entry for each. None: the engine has no probes."""
        scores = self._context.prompt_scores
        return None if scores is None else scores.tokens

    @property
    def probes(self) -> tuple[ProbeInfo, ...]:
        """The probes that give the scores. Empty: the engine has none."""
        scores = self._context.prompt_scores
        return () if scores is None else scores.probes

    def __repr__(self) -> str:
        # Never the text: a repr ends up in logs.
        return (
            f"<Chunk {self.request_id}/{self.output_index}/{self.channel} "
            f"+{len(self.text_diff)} characters{', final' if self.is_final else ''}>"
        )
