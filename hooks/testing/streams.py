"""Streams to test hooks with: made from text, tokens or a recording, and cut at any place.

A stream is a `Recording`: a request and its deltas. A cut puts the outputs one after another, and in each
output its channels and tool calls. Without any place, each of these is one chunk. Places are numbered from 1
over all of the text: at place p a chunk ends after the p-th character.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, get_args

from engine.parsers import Parsers, Parsing
from engine.protocol import (
    Channel,
    Delta,
    Deltas,
    EngineError,
    FinishReason,
    GenerationRequest,
    Scores,
    Token,
    ToolCall,
)
from engine.protocol.deltas import without_prompt
from engine.protocol.parts import known_parsers
from engine.streams.feeding import feed_all, iterated
from engine.streams.flow import StagedFlow
from engine.streams.recording import Recording, TimedDelta
from hooks.api.probe_needs import ProbeNeeds
from hooks.loading.coroutines import run
from hooks.loading.loader import LoadedHook

Source = str | Sequence[str] | Path | Recording
"""A text, a list of tokens, the file of a recording, or a recording."""

Prompt = str | Sequence[Mapping[str, Any]] | GenerationRequest
"""A user's words, a chat's messages, or a whole request."""

WORDS = re.compile(r"\s?\w+|\s?[^\w\s]+|\s+")


def stream_of(
    source: Source,
    *,
    prompt: Prompt | None = None,
    channel: Channel | None = None,
    tool_name: str | None = None,
    reasoning_parser: str | None = None,
    tool_call_parser: str | None = None,
    lead: str | None = None,
    is_cut: bool = False,
) -> Recording:
    """A stream from an engine's output. Raises `ValueError` for a file that is not a recording, and for an
    argument that is unknown or does not fit the source.

    A text is cut into words, each a token with an id and a logprob. `prompt`: what was asked (None: `Hello?`,
    or the recording's prompt). `channel` (None: content) and `tool_name` (None: some tool's) are for texts
    and tokens. The parsers, by their names in `weir serve`, split a recording's content into reasoning, tool
    calls and content. A relative `Path` begins at the working folder.

    `lead`: the text that the output continues, an assistant's message after the prompt. `is_cut`: a text or
    tokens end where the client chose, at `max_tokens`, and not where the model did.
    """
    _check_one_of("channel", channel, get_args(Channel))
    _check_one_of("reasoning_parser", reasoning_parser, known_parsers("reasoning_parser"))
    _check_one_of("tool_call_parser", tool_call_parser, known_parsers("tool_call_parser"))
    if isinstance(source, Path):
        source = Recording.load(source)
    if isinstance(source, Recording):
        _check_none("a recording", channel=channel, tool_name=tool_name, is_cut=is_cut or None)
        request = source.request if prompt is None else request_for(prompt)
        source = replace(source, request=with_lead(request, lead))
        parsers = Parsers(reasoning_parser, tool_call_parser)
        is_parsed = source.request.is_chat and parsers != Parsers()
        return run(_parsed(parsers, source)) if is_parsed else source
    _check_none("a text or tokens", reasoning_parser=reasoning_parser, tool_call_parser=tool_call_parser)
    channel = channel or "content"
    tokens = WORDS.findall(source) if isinstance(source, str) else source
    call = ToolCall(0, tool_name or "send_mail") if channel == "tool_call" else None
    deltas = [
        Delta(text=text, tokens=(Token(i, text, text.encode(), -0.5),), channel=channel, tool_call=call)
        for i, text in enumerate(tokens)
    ]
    request = with_lead(request_for() if prompt is None else request_for(prompt), lead)
    finish: FinishReason = "length" if is_cut else "stop"
    return _recording(request, [*deltas, Delta(channel=channel, tool_call=call, finish_reason=finish)])


def _check_one_of(name: str, value: str | None, known: Sequence[str]) -> None:
    if value not in (None, *known):
        raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")


def _check_none(source: str, **arguments: object) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is not for {source}")


def request_for(prompt: Prompt = "Hello?") -> GenerationRequest:
    if isinstance(prompt, GenerationRequest):
        return prompt
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return GenerationRequest(
        request_id="weir-test", model="weir-test", endpoint="chat", messages=tuple(messages)
    )


def with_lead(request: GenerationRequest, lead: str | None) -> GenerationRequest:
    """The request with a further message, an assistant's, that the output continues. Raises `ValueError` for
    a completion, whose prompt is its lead."""
    if lead is None:
        return request
    if not request.is_chat:
        raise ValueError("lead: a completion continues its prompt")
    message = {"role": "assistant", "content": lead}
    return replace(request, messages=(*request.messages, message))


def scored(stream: Recording, hooks: Iterable[LoadedHook]) -> Recording:
    """The stream, with made-up scores if one of the hooks needs some."""
    needs = next((hook.needs_probe for hook in hooks if hook.needs_probe is not None), None)
    return stream if needs is None else with_scores(stream, needs)


def with_scores(stream: Recording, needs: ProbeNeeds) -> Recording:
    """The same stream with made-up scores, for a hook that needs some. They depend on the tokens' texts."""
    prompt = needs.canary()
    begun: set[int] = set()
    deltas: list[TimedDelta] = []
    for timed in stream.deltas:
        delta = timed.delta
        tokens = [t._replace(scores=(float(len(t.text) % 4),) * len(prompt.tokens[0])) for t in delta.tokens]
        first = None if delta.index in begun else prompt
        begun.add(delta.index)
        deltas.append(replace(timed, delta=replace(delta, tokens=tuple(tokens), prompt_scores=first)))
    return replace(stream, deltas=tuple(deltas))


def num_places(stream: Recording) -> int:
    return sum(len(timed.delta.text) for timed in stream.deltas)


def token_places(stream: Recording) -> list[int]:
    lengths = (len(token.text) for run in _runs(stream) for token in run.tokens)
    return sorted({place for place in accumulate(lengths) if place})


def is_interleaved(stream: Recording) -> bool:
    """Whether an output, a channel or a call continues after another one began."""
    keys = [_key(timed.delta) for timed in stream.deltas]
    return len(list(groupby(keys))) > len(set(keys))


def cut(stream: Recording, places: Collection[int] | None) -> Recording:
    """The same stream, its chunks ending at `places`, as long as possible between them. None: as it is.

    A token that is cut becomes two, without an id, a logprob or other bytes than their text's: those would
    reveal one part together with the other. The second part has the token's scores. An output's finish comes
    with its last text, unless that ends a chunk.
    """
    if places is None:
        return stream
    deltas: list[Delta] = []
    start = 0
    for piece in _runs(stream):
        end = start + len(piece.text)
        inside = sorted(place - start for place in places if start < place < end)
        deltas += piece.cut(inside, has_end_apart=end in places)
        start = end
    usages = [timed.delta.usage for timed in stream.deltas if timed.delta.usage]
    if usages:  # running totals of all outputs
        deltas[-1] = replace(deltas[-1], usage=usages[-1])
    return replace(_recording(stream.request, deltas), failure=stream.failure)


async def source_of(stream: Recording, beat: Callable[[], None] = lambda: None) -> Deltas:
    """The deltas at once, as an engine gives them, and `beat` before each. Raises the `EngineError` that
    ended the stream, if one did."""
    for timed in stream.deltas:
        beat()
        yield timed.delta
    if stream.failure:
        raise EngineError(stream.failure.message, status=stream.failure.status)


async def _parsed(parsers: Parsers, stream: Recording) -> Recording:
    unfailed = replace(stream, failure=None)
    flow = StagedFlow(partial(feed_all, source_of(unfailed)), [Parsing(parsers, stream.request)])
    deltas = [delta async for delta in iterated(flow)]
    return replace(_recording(stream.request, deltas), failure=stream.failure)


def _recording(request: GenerationRequest, deltas: Iterable[Delta]) -> Recording:
    return Recording(request, tuple(TimedDelta(0.0, delta) for delta in deltas))


_Key = tuple[int, Channel, ToolCall | None]


def _key(delta: Delta) -> _Key:
    return delta.index, delta.channel, delta.tool_call


class _Run:
    """Deltas that could be one: everything that an output contains on one channel, or in one call."""

    def __init__(self, first: Delta) -> None:
        self.first = first
        self.text = ""
        self.tokens: list[Token] = []
        """The tokens of all the text. The text of a delta without tokens counts as one token."""
        self.has_tokens = False
        self.last = first

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.tokens += delta.tokens or ([_bare_token(delta.text)] if delta.text else [])
        self.has_tokens = self.has_tokens or bool(delta.tokens)
        self.last = delta

    def cut(self, places: list[int], *, has_end_apart: bool) -> Iterator[Delta]:
        end, last = len(self.text), self.last
        bounds = [0, *places, end]
        if has_end_apart and end and last.finish_reason is not None:
            bounds.append(end)
        *pairs, (final, _) = pairwise(bounds)
        left = self.tokens[::-1] if self.has_tokens else []
        base = replace(self.first, finish_reason=None, stop_reason=None, usage=None)
        for start, stop in pairs:
            yield replace(base, text=self.text[start:stop], tokens=tuple(_take(left, stop - start)))
            base = without_prompt(base)
        yield replace(
            base,
            text=self.text[final:],
            tokens=tuple(left[::-1]),
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason,
            is_cut=last.is_cut,
        )


def _bare_token(text: str, scores: Scores | None = None) -> Token:
    return Token(None, text, text.encode(), scores=scores)


def _take(tokens: list[Token], length: int) -> list[Token]:
    """Take the tokens of the next `length` characters from the end of the reversed list `tokens`."""
    taken: list[Token] = []
    while tokens and length:
        token = tokens.pop()
        text, rest = token.text[:length], token.text[length:]
        length -= len(text)
        if rest:
            while taken and not taken[-1].text:  # the tokens without text share the text of the next one
                taken.pop()
            tokens.append(_bare_token(rest, token.scores))
            token = _bare_token(text)
        taken.append(token)
    return taken


def _runs(stream: Recording) -> list[_Run]:
    outputs: dict[int, dict[_Key | None, _Run]] = {}
    for timed in stream.deltas:
        delta, key = timed.delta, _key(timed.delta)
        runs = outputs.setdefault(delta.index, {})
        if delta.finish_reason is not None and key in runs and key != next(reversed(runs)):
            if delta.text:
                runs[key].add(replace(delta, finish_reason=None, stop_reason=None))
            runs[None] = _Run(delta)  # an output's end stays after all of its text
            runs[None].add(replace(delta, text="", tokens=() if delta.text else delta.tokens))
        else:
            runs.setdefault(key, _Run(delta)).add(delta)
    return [run for runs in outputs.values() for run in runs.values()]
