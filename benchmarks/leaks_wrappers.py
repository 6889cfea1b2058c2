"""Does anything of a forbidden span get out of a wrapper of the library? A part of `make bench NAME=leaks`.

A model's server, in memory, streams random texts full of a few phrases, in random chunks that are cut
anywhere. Each SDK asks for each text, streamed or whole, through hooks that redact the phrases or end at
them. The text that it gets, and the tokens of its logprobs, are compared with those that it should get.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import orjson

from benchmarks.leak_guards import MATCH, EndAtPhrases, RedactPhrases
from benchmarks.leaks import expected, random_tokens
from engine.protocol import Token
from weir import Guards

Pieces = Sequence[Sequence[Token]]
Wrapper = Callable[[Guards, random.Random, Pieces], tuple[str, bytes | None]]
"""The text that an SDK gets of a server's pieces, and the bytes of the tokens in its logprobs, if any."""


def _events(pieces: Pieces) -> bytes:
    """A chat with the pieces, as a server streams it."""
    choices: list[dict[str, Any]] = []
    for tokens in pieces:
        logprobs = [
            {
                "token": one.raw.decode("utf-8", "replace"),
                "logprob": -0.5,
                "bytes": list(one.raw),
                "top_logprobs": [],
            }
            for one in tokens
        ]
        text = "".join(one.text for one in tokens)
        choices.append({"index": 0, "delta": {"content": text}, "logprobs": {"content": logprobs}})
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [orjson.dumps({"choices": [choice]}) for choice in choices]
    return b"".join(b"data: %b\n\n" % chunk for chunk in [*chunks, b"[DONE]"])


def _blocks(pieces: Pieces) -> bytes:
    """A message with the pieces, as a server streams it."""
    made: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    for tokens in pieces:
        delta = {"type": "text_delta", "text": "".join(one.text for one in tokens)}
        made.append({"type": "content_block_delta", "index": 0, "delta": delta})
    made += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in made)


class _Cut(httpx2.SyncByteStream):
    def __init__(self, rng: random.Random, data: bytes) -> None:
        self._rng, self._data = rng, data

    def __iter__(self) -> Any:
        start = 0
        while start < len(self._data):
            size = self._rng.choice((1, 7, 60, 300, 5000))
            yield self._data[start : start + size]
            start += size


def by_openai(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    import openai

    import weir.openai

    server = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=_Cut(rng, _events(pieces))))
    http = weir.openai.http_client(guards, transport=server)
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}
    with openai.OpenAI(api_key="k", http_client=http) as sdk:
        if rng.random() < 0.5:
            choices = [one.choices[0] for one in sdk.chat.completions.create(**asked, stream=True)]
            text = "".join(one.delta.content or "" for one in choices)
        else:
            choices = sdk.chat.completions.create(**asked).choices
            text = choices[0].message.content
    given = [one for choice in choices if choice.logprobs for one in choice.logprobs.content or ()]
    return text, b"".join(bytes(one.bytes or ()) for one in given)


def by_anthropic(guards: Guards, rng: random.Random, pieces: Pieces) -> tuple[str, bytes | None]:
    """As `by_openai`. A message has no logprobs."""
    import anthropic

    import weir.anthropic

    server = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=_Cut(rng, _blocks(pieces))))
    http = weir.anthropic.http_client(guards, transport=server)
    asked: Any = {"model": "m", "max_tokens": 999, "messages": [{"role": "user", "content": "Hi"}]}
    with anthropic.Anthropic(api_key="k", http_client=http) as sdk:
        if rng.random() < 0.5:
            with sdk.messages.stream(**asked) as stream:
                return "".join(stream.text_stream), None
        return "".join(one.text for one in sdk.messages.create(**asked).content if one.type == "text"), None


WRAPPERS: dict[str, Wrapper] = {"openai": by_openai, "anthropic": by_anthropic}


def _kept(raws: Sequence[bytes], *, ends: bool) -> bytes:
    """The bytes of the tokens without a byte of what hooks change. Tokens of one character stay together."""
    text = b"".join(raws).decode()
    spans = [(found.start(), found.end()) for found in MATCH.finditer(text)]
    spans = [(spans[0][0], len(text))] if ends and spans else spans
    gone = "".join("-" if any(a <= i < b for a, b in spans) else "+" for i in range(len(text)))
    marks = b"".join(mark.encode() * len(one.encode()) for mark, one in zip(gone, text, strict=True))
    kept, group, start = b"", b"", 0
    for raw in raws:
        group += raw
        if group.decode(errors="ignore").encode() != group:
            continue  # it ends within a character
        if b"-" not in marks[start : start + len(group)]:
            kept += group
        start, group = start + len(group), b""
    return kept


def run(num_streams: int, seed: int, wrapper: Wrapper) -> None:
    """Run so many streams. Raises `AssertionError`."""
    rng = random.Random(seed)
    guards = {False: Guards(RedactPhrases()), True: Guards(EndAtPhrases())}
    for _ in range(num_streams):
        tokens, ends = random_tokens(rng), rng.random() < 0.3
        pieces, rest = [], list(tokens)
        while rest:
            size = rng.randint(1, 6)
            while size < len(rest) and not rest[size - 1].text:
                size += 1
            pieces.append(rest[:size])
            rest = rest[size:]
        text, of_tokens = wrapper(guards[ends], rng, pieces)
        assert text == expected(tokens, ends=ends, is_cut=False)[0]
        assert of_tokens in (None, _kept([token.raw for token in tokens], ends=ends))
