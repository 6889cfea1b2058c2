"""Plain functions over the deltas of an answer."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from engine.protocol import Delta, Token


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
