"""Deltas: an answer as it comes, in pieces. Functions over deltas follow their types."""

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from engine.protocol.probe_info import PromptScores, Scores

Channel = Literal["content", "reasoning", "tool_call", "echo"]
"""A text stream of an output. `echo` is the prompt, or the message that a chat continues, if asked for."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


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
    """None: the engine does not report it, or nobody may know it (the token that a stop string cuts)."""
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
    of a prompt have it, and only if the engine reports it."""
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
class Usage:
    """Token counts of a whole request, so far. A `Usage` never changes once it is made, as a `Delta`."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that were not computed, because an earlier prompt or output began with them."""
    reasoning_tokens: int = 0
    cache_written_tokens: int = 0
    """Prompt tokens that an upstream wrote to its cache, if it reports them."""
    cache_written_1h_tokens: int = 0
    """The tokens among these that the cache keeps for an hour."""
    is_estimated: bool = field(default=False, compare=False)
    """Whether a count is Weir's own, of an upstream's pieces: the upstream has not reported both (yet)."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Usage, _usage_values(self)


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

    def __reduce__(self) -> tuple[Any, ...]:
        return Delta, _delta_values(self)

    @property
    def num_output_tokens(self) -> int:
        """The generated tokens. Tokens of an echoed prompt do not count."""
        return 0 if self.channel == "echo" else len(self.tokens)


# Deltas go from process to process, which takes a third of the time by their fields' values in order.
_usage_values = attrgetter(*Usage.__slots__)
_delta_values = attrgetter(*Delta.__slots__)


@dataclass(frozen=True, slots=True)
class Rewind:
    """Rewinds an output to its first `num_tokens` tokens, and has it continue differently.

    A reader sends it to the iterator of `Engine.generate` by `asend`, in answer to a delta of this output.
    Deltas of later tokens become void, even the output's end. The output's next deltas continue after
    the kept tokens. If no other token may come there, the next delta ends the output with the finish reason
    `content_filter`, without a token.
    """

    index: int
    """The output's number."""
    num_tokens: int
    """Tokens of the output that are kept."""
    banned: tuple[int, ...] | None = None
    """Token ids that must not come next, nor may those banned here earlier. None: the withdrawn
    token's id."""


Deltas = AsyncGenerator[Delta, Rewind | None]
"""An answer as it comes. An engine that cannot rewind ignores a `Rewind`."""


def join(deltas: list[Delta]) -> list[Delta]:
    """The same content in fewer deltas: consecutive deltas of one stream of one output become one.

    Each output's deltas keep their order. A joined delta takes the place of its last part, so that the
    request's usage never decreases. Returns the same list if there is nothing to join.
    """
    if len(deltas) < 2:
        return deltas
    runs: dict[int, list[Delta]] = {}
    latest: dict[int, int] = {}  # the last run of each output
    for number, delta in enumerate(deltas):
        before = latest.get(delta.index)
        run = []
        if before is not None and _continues(runs[before][-1], delta):
            run = runs.pop(before)
        run.append(delta)
        runs[number] = run
        latest[delta.index] = number
    return [_joined(run) if len(run) > 1 else run[0] for run in runs.values()]


def first_tokens(deltas: Iterable[Delta], num_tokens: int) -> list[Delta]:
    """One output's deltas, cut after its first `num_tokens` tokens. The prompt's tokens are kept, and the
    output has not ended."""
    kept = []
    for delta in deltas:
        tokens = delta.tokens
        if delta.channel != "echo":
            tokens = tokens[:num_tokens]
            num_tokens -= len(tokens)
        if tokens or delta.channel == "echo" or has_prompt(delta):
            text = delta.text if len(tokens) == len(delta.tokens) else "".join(t.text for t in tokens)
            kept.append(replace(delta, text=text, tokens=tokens, finish_reason=None, stop_reason=None))
    return kept


def in_pieces(deltas: Sequence[Delta], length: int) -> Iterable[Delta]:
    """The same content, with no text that is much longer than `length` characters. A token stays whole."""
    for delta in deltas:
        if len(delta.text) > length:
            return _in_pieces(deltas, length)
    return deltas


def _in_pieces(deltas: Sequence[Delta], length: int) -> Iterator[Delta]:
    for delta in deltas:
        if len(delta.text) <= length:
            yield delta
        else:
            yield from _pieces(delta, length)


def with_own_reason(last: Delta, *, has_call: bool) -> Delta:
    """An output's last delta. If the model itself ended the output, its finish reason is `tool_calls` for an
    output with a tool call, and `stop` for one without: some servers and parsers say the other one.

    It does not become `tool_calls` if a hook or a stop string ended the output, or if nobody knows what did:
    the last call may be cut.
    """
    if last.is_blocked or last.finish_reason not in ("stop", "tool_calls"):
        return last
    if not has_call:
        return replace(last, finish_reason="stop")
    is_own = not (last.is_cut or isinstance(last.stop_reason, str))
    return replace(last, finish_reason="tool_calls") if is_own else last


def has_prompt(delta: Delta) -> bool:
    """Whether the delta has the ids or scores of its output's prompt. Only an output's first delta may."""
    return delta.prompt_token_ids is not None or delta.prompt_scores is not None


def with_prompt_of(delta: Delta, first: Delta) -> Delta:
    """`delta`, with the prompt's ids and scores of `first`."""
    return replace(delta, prompt_token_ids=first.prompt_token_ids, prompt_scores=first.prompt_scores)


def without_prompt(delta: Delta) -> Delta:
    return replace(delta, prompt_token_ids=None, prompt_scores=None)


def _continues(before: Delta, delta: Delta) -> bool:
    is_bare_end = delta.finish_reason is not None and not delta.text and not delta.tokens
    return (
        before.finish_reason is None
        and (before.channel, before.tool_call) == (delta.channel, delta.tool_call)
        # The tokens of a delta account for all of its text, so text without tokens stays by itself.
        and (bool(before.tokens) == bool(delta.tokens) or is_bare_end)
        and not has_prompt(delta)
    )


def _joined(run: Sequence[Delta]) -> Delta:
    first, last = run[0], run[-1]
    return Delta(
        index=first.index,
        text="".join([delta.text for delta in run]),
        tokens=tuple([token for delta in run for token in delta.tokens]),
        channel=first.channel,
        tool_call=first.tool_call,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        prompt_token_ids=first.prompt_token_ids,
        prompt_scores=first.prompt_scores,
        usage=last.usage,
        is_cut=last.is_cut,
        is_blocked=last.is_blocked,
    )


def _pieces(delta: Delta, length: int) -> Iterator[Delta]:
    *parts, (text, tokens) = _parts(delta, length)
    for part, some in parts:
        yield replace(delta, text=part, tokens=some, finish_reason=None, stop_reason=None)
        delta = without_prompt(delta)
    yield replace(delta, text=text, tokens=tokens)


def _parts(delta: Delta, length: int) -> Iterator[tuple[str, tuple[Token, ...]]]:
    """The text in parts of `length` characters or a little more, each with the tokens that make it."""
    if not delta.tokens:
        for start in range(0, len(delta.text), length):
            yield delta.text[start : start + length], ()
        return
    begin = size = 0
    for end, token in enumerate(delta.tokens, start=1):
        size += len(token.text)
        if size >= length or end == len(delta.tokens):
            tokens = delta.tokens[begin:end]
            yield "".join([token.text for token in tokens]), tokens
            begin, size = end, 0
