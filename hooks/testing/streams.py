"""Streams to test hooks with: made of text, of tokens or of a recording, and cut anew at any place.

A stream is a `Recording`: a request and its deltas. The places where it may be cut are numbered from 1, over
the text of all of its deltas, in order: at place p a chunk ends behind the p-th character. Deltas of another
output, channel or tool call are chunks of their own wherever it is cut.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.parsers import Parsers, parsed
from engine.protocol import Channel, Delta, Deltas, EngineError, GenerationRequest, Token, ToolCall
from engine.recording import Recording, TimedDelta
from hooks.testing.sync import run

Source = str | Sequence[str] | Path | Recording
"""A text, its tokens, the file of a recording, or a recording."""

Prompt = str | Sequence[Mapping[str, Any]] | GenerationRequest
"""A user's words, a chat's messages, or a whole request."""

WORDS = re.compile(r"\s?\w+|\s?[^\w\s]+|\s+")


def stream_of(
    source: Source,
    *,
    prompt: Prompt | None = None,
    channel: Channel = "content",
    tool_name: str = "send_mail",
    reasoning_parser: str | None = None,
    tool_call_parser: str | None = None,
) -> Recording:
    """A stream from what an engine said. Raises `ValueError` for a file that is no recording.

    A text is cut into words, each a token with an id and a logprob. `prompt`: what was asked (None: `Hello?`,
    or what the recording says). `channel` and `tool_name` are for texts and tokens. The parsers, by the names
    that `weir serve` knows them by, tell the reasoning and tool calls of a recording from its content.
    """
    if isinstance(source, Path):
        source = Recording.load(source)
    if isinstance(source, Recording):
        source = source if prompt is None else replace(source, request=request_for(prompt))
        parsers = Parsers(reasoning_parser, tool_call_parser)
        is_parsed = source.request.is_chat and parsers != Parsers()
        return run(_parsed(parsers, source)) if is_parsed else source
    tokens = WORDS.findall(source) if isinstance(source, str) else source
    call = ToolCall(0, tool_name) if channel == "tool_call" else None
    deltas = [
        Delta(text=text, tokens=(Token(i, text, text.encode(), -0.5),), channel=channel, tool_call=call)
        for i, text in enumerate(tokens)
    ]
    request = request_for() if prompt is None else request_for(prompt)
    return _recording(request, [*deltas, Delta(channel=channel, tool_call=call, finish_reason="stop")])


def request_for(prompt: Prompt = "Hello?") -> GenerationRequest:
    if isinstance(prompt, GenerationRequest):
        return prompt
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return GenerationRequest(
        request_id="weir-test", model="weir-test", endpoint="chat", messages=tuple(messages)
    )


def num_places(stream: Recording) -> int:
    return sum(len(timed.delta.text) for timed in stream.deltas)


def token_places(stream: Recording) -> list[int]:
    """The places where a token ends."""
    places = []
    end = 0
    for timed in stream.deltas:
        for text in [token.text for token in timed.delta.tokens] or [timed.delta.text]:
            end += len(text)
            places.append(end)
    return sorted({place for place in places if place})


def cut(stream: Recording, places: Collection[int]) -> Recording:
    """The same stream, its chunks ending at `places`, as long as possible between them.

    A token that is cut in two is two, without an id, a logprob or other bytes than their text's: those would
    tell of either part with the other. An output's finish comes with its last text, unless that ends a chunk.
    """
    deltas: list[Delta] = []
    start = 0
    for piece in _runs(timed.delta for timed in stream.deltas):
        end = start + len(piece.text)
        inside = sorted(place - start for place in places if start < place < end)
        deltas += piece.cut(inside, has_end_apart=end in places)
        start = end
    return replace(_recording(stream.request, deltas), failure=stream.failure)


async def source_of(stream: Recording) -> Deltas:
    """Its deltas at once, as an engine gives them; raises the `EngineError` that ended it, if one did."""
    for timed in stream.deltas:
        yield timed.delta
    if stream.failure:
        raise EngineError(stream.failure.message, status=stream.failure.status)


async def _parsed(parsers: Parsers, stream: Recording) -> Recording:
    unfailed = replace(stream, failure=None)
    deltas = [delta async for delta in parsed(parsers, stream.request, source_of(unfailed))]
    return replace(_recording(stream.request, deltas), failure=stream.failure)


def _recording(request: GenerationRequest, deltas: Iterable[Delta]) -> Recording:
    return Recording(request, tuple(TimedDelta(0.0, delta) for delta in deltas))


class _Run:
    """Deltas in a row that could have been one: of the same output, channel and call, up to its finish."""

    def __init__(self, first: Delta) -> None:
        self.first = first
        self.text = ""
        self.tokens: list[Token] = []
        self.last = first

    def takes(self, delta: Delta) -> bool:
        if self.last.finish_reason is not None:
            return False
        same = (delta.index, delta.channel, delta.tool_call) == (
            self.first.index,
            self.first.channel,
            self.first.tool_call,
        )
        # Either all of a delta's text belongs to tokens, or none of it.
        return same and (not delta.text or not self.text or bool(delta.tokens) == bool(self.tokens))

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.tokens += delta.tokens
        self.last = delta

    def cut(self, places: list[int], *, has_end_apart: bool) -> Iterator[Delta]:
        end, last = len(self.text), self.last
        bounds = [0, *places, end]
        if has_end_apart and end and last.finish_reason is not None:
            bounds.append(end)
        *pairs, (final, _) = pairwise(bounds)
        left = self.tokens[::-1]
        base = replace(self.first, finish_reason=None, stop_reason=None, usage=None)
        for start, stop in pairs:
            yield replace(base, text=self.text[start:stop], tokens=tuple(_take(left, stop - start)))
            base = replace(base, prompt_token_ids=None)
        yield replace(
            base,
            text=self.text[final:],
            tokens=tuple(left[::-1]),
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason,
            usage=last.usage,
        )


def _take(tokens: list[Token], length: int) -> list[Token]:
    """Take the tokens of the next `length` characters from the end of `tokens`, which are in reverse."""
    taken: list[Token] = []
    while tokens and length:
        token = tokens.pop()
        text, rest = token.text[:length], token.text[length:]
        length -= len(text)
        if rest:
            while taken and not taken[-1].text:  # which share its text
                taken.pop()
            tokens.append(Token(None, rest, rest.encode()))
            token = Token(None, text, text.encode())
        taken.append(token)
    return taken


def _runs(deltas: Iterable[Delta]) -> Iterator[_Run]:
    run: _Run | None = None
    for delta in deltas:
        if run is not None and not run.takes(delta):
            yield run
            run = None
        run = run or _Run(delta)
        run.add(delta)
    if run is not None:
        yield run
