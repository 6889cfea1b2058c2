"""Halves of characters and wrong bytes of an upstream: joined, or U+FFFD, and never the end of an answer."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, SamplingParams
from engine.protocol.characters import whole_characters, with_whole_characters
from engine.upstream.json_text import OPEN_TEXTS, HalfCharacters, read_object, strict_json
from engine.upstream.limits import UpstreamOptions
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.messages.stream import StreamTranslator as MessagesTranslator
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.openai.stream import StreamTranslator
from tests.engine.upstream.conftest import FakeUpstream
from tests.engine.upstream.messages.asked import STOP, begin, end, piece, start, stop
from tests.engine.upstream.openai.asked import chat, completion

UNITS = st.lists(st.sampled_from([*map(ord, "a é\u20ac"), 0xD83D, 0xDE00, 0xD800, 0xDFFF]), max_size=8)
CUTS = st.sets(st.integers(1, 7))
SMILE = "😀"


def text_of(units: list[int]) -> str:
    return "".join(map(chr, units))


def pieces_of(units: list[int], cuts: set[int]) -> list[str]:
    bounds = [0, *sorted(cut for cut in cuts if cut < len(units)), len(units)]
    return [text_of(units[a:b]) for a, b in pairwise(bounds)]


def json_of(value: Any) -> bytes:
    """JSON as some servers write it: each half of a character by itself."""
    if isinstance(value, str):
        return b'"' + b"".join(b"\\u%04x" % ord(one) for one in value) + b'"'
    if isinstance(value, list):
        return b"[" + b",".join(map(json_of, value)) + b"]"
    if isinstance(value, dict):
        return b"{" + b",".join(json_of(k) + b":" + json_of(v) for k, v in value.items()) + b"}"
    return orjson.dumps(value)


def check_whole(value: Any) -> None:
    """Fail for half a character anywhere in the values."""
    repr_of_all = repr(value)
    assert not any(f"\\ud{digit}" in repr_of_all for digit in "89abcdef"), repr_of_all


@given(UNITS, CUTS)
def test_a_text_is_the_same_wherever_it_is_cut(units: list[int], cuts: set[int]) -> None:
    halves = HalfCharacters()
    joined = [halves.join("a", one) for one in pieces_of(units, cuts)]
    check_whole(joined)
    assert "".join(joined) + halves.end("a") == whole_characters(text_of(units))
    assert not halves


def test_each_stream_has_its_own_half() -> None:
    halves = HalfCharacters()
    assert [halves.join("a", "\ud83d"), halves.join("b", "\ude00"), halves.join("a", "\ude00")] == [
        "",
        "\ufffd",
        SMILE,
    ]


CHANNELS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "content": ("content", lambda text: {"delta": {"content": text}}),
    "refusal": ("content", lambda text: {"delta": {"refusal": text}}),
    "parts": ("content", lambda text: {"delta": {"content": [{"type": "text", "text": text}]}}),
    "reasoning": ("reasoning", lambda text: {"delta": {"reasoning": text}}),
    "reasoning_content": ("reasoning", lambda text: {"delta": {"reasoning_content": text}}),
    "arguments": (
        "tool_call",
        lambda text: {"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": text}}]}},
    ),
    "text": ("content", lambda text: {"text": text}),
}


def translated(request: GenerationRequest, *chunks: Any) -> list[Delta]:
    translator, deltas = StreamTranslator(request), list[Delta]()
    for chunk in chunks:
        data = json_of(chunk)
        alike = translator.alike and translator.alike(b"data: %b\n\n" % data)
        deltas += translator.feed(read_object(data, OPEN_TEXTS), data) if alike is None else [alike]
    return deltas + translator.finish(complete=True)


def test_half_a_character_comes_before_the_text_that_follows_it() -> None:
    chunks = ({"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("a", "b\ud83d", "c", "d"))
    assert [delta.text for delta in translated(chat(), *chunks)] == ["a", "b", "\ufffdc", "d", ""]


@pytest.mark.parametrize("channel", CHANNELS)
@given(units=UNITS, cuts=CUTS)
def test_every_text_of_a_chunk_is_the_same_wherever_it_is_cut(
    channel: str, units: list[int], cuts: set[int]
) -> None:
    name, choice = CHANNELS[channel]
    request = completion("Hi") if channel == "text" else chat()
    chunks = [{"choices": [{"index": 0, **choice(one)}]} for one in pieces_of(units, cuts)]
    deltas = translated(request, *chunks, {"choices": [{"index": 0, "finish_reason": "length"}]})
    check_whole(deltas)
    said = "".join(delta.text for delta in deltas if delta.channel == name)
    assert said == whole_characters(text_of(units))


def test_halves_are_joined_by_choice_and_by_call() -> None:
    chunks = [
        {"choices": [{"index": i, "delta": {"content": half}} for i in (0, 1)]}
        for half in ("\ud83d", "\ude00")
    ]
    ends: list[Any] = [{"choices": [{"index": i, "finish_reason": "stop"}]} for i in (0, 1)]
    deltas = translated(chat(sampling=SamplingParams(n=2)), *chunks, *ends)
    assert [(delta.index, delta.text) for delta in deltas if delta.text] == [(0, SMILE), (1, SMILE)]
    calls: list[Any] = [
        {"choices": [{"delta": {"tool_calls": [{"index": i, "id": f"c{i}", "function": function}]}}]}
        for function in ({"name": "f", "arguments": '{"a":"\ud83d'}, {"arguments": '\ude00"}'})
        for i in (0, 1)
    ]
    deltas = translated(chat(), *calls, {"choices": [{"finish_reason": "tool_calls"}]})
    for i in (0, 1):
        said = [delta.text for delta in deltas if delta.tool_call and delta.tool_call.index == i]
        assert "".join(said) == '{"a":"😀"}'


# contract 2.4
def test_no_other_field_has_half_a_character() -> None:
    half = "a\ud83d"
    token = {
        "token": half,
        "bytes": None,
        "logprob": -1.0,
        "top_logprobs": [{"token": half, "logprob": -1.0}],
    }
    call = {"index": half, "id": half, "function": {"name": half, "arguments": {half: [half]}}}
    chunk = {
        "id": half,
        "system_fingerprint": half,
        half: half,
        "choices": [{"delta": {"content": "a\ufffd", "role": half}, "logprobs": {"content": [token]}}],
    }
    ends = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": half, "stop_reason": half}]}
    deltas = translated(chat(sampling=SamplingParams(logprobs=1)), chunk, ends)
    check_whole(deltas)
    named = [delta for delta in deltas if delta.tool_call]
    assert [(delta.tool_call and delta.tool_call.name, delta.text) for delta in named] == [
        ("a\ufffd", '{"a\ufffd":["a\ufffd"]}')
    ]


def test_a_tokens_half_goes_with_the_text_that_it_completes() -> None:
    def piece_of(text: str, token: str) -> Any:
        logprobs = {"content": [{"token": token, "logprob": -1.0, "top_logprobs": []}]}
        return {"choices": [{"delta": {"content": text}, "logprobs": logprobs}]}

    chunks = [piece_of("\ud83d", "\ufffd"), piece_of("\ude00", "\ufffd"), piece_of("a", "a")]
    deltas = translated(
        chat(sampling=SamplingParams(logprobs=0)), *chunks, {"choices": [{"finish_reason": "stop"}]}
    )
    assert [(delta.text, len(delta.tokens)) for delta in deltas if delta.text] == [(SMILE, 2), ("a", 1)]


@pytest.mark.parametrize("kind", ["text", "thinking", "tool_use"])
@given(units=UNITS, cuts=CUTS)
def test_every_block_is_the_same_wherever_it_is_cut(kind: str, units: list[int], cuts: set[int]) -> None:
    parts = pieces_of(units, cuts)
    events = [begin(), start(0, kind), *(piece(0, kind, one) for one in parts), stop(0), end()]
    translator = MessagesTranslator(chat(), UpstreamOptions())
    deltas = [delta for event in events for delta in translator.feed(read_object(json_of(event), OPEN_TEXTS))]
    deltas += translator.finish(complete=True)
    check_whole(deltas)
    said = "".join(delta.text for delta in deltas)
    text = whole_characters(text_of(units))
    assert said == ("{}" if kind == "tool_use" and not text.strip() else text)


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'{"a":"\xed\xa0\xbd\xed\xb8\x80"}', {"a": "\ufffd" * 6}),
        (b'{"a":"\xe6\x80="}', {"a": "\ufffd="}),
        (b'{"\\ud83d":"\\ude00"}', {"\ufffd": "\ufffd"}),
        (b'{"content":"\\ud83d"}', {"content": "\ufffd"}),
        (b'{"a":"\\\\ud83d"}', {"a": "\\ud83d"}),
        (b'{"a":"b\tc\x00"}', {"a": "b\tc\x00"}),
    ],
)
def test_a_whole_body_has_whole_characters(data: bytes, read: Any) -> None:
    assert read_object(data) == read
    assert orjson.loads(strict_json(data)) == read


def test_json_that_is_strict_already_stays_as_it_is() -> None:
    data = b' {"a": 1.50, "b": "\\u00e9"}\n'
    assert strict_json(data) is data


@given(
    st.recursive(
        st.text() | st.integers(0, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_other_json_is_read_as_it_is(value: Any) -> None:
    assert with_whole_characters(value) == value
    assert read_object(orjson.dumps({"content": value}), OPEN_TEXTS) == {"content": value}


EVENTS = [
    b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % text
    for text in (b"\xef\xbb", b"w\xc3\xb6", b"\\ud83d", b"\\ude00", b"\xed\xa0\xbd", b" x", b"\\udc00.")
]
SAID = "\ufffdwö😀\ufffd\ufffd\ufffd x\ufffd."
DONE = [b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
async def test_wrong_bytes_and_a_byte_order_mark_end_no_stream(upstream: FakeUpstream, size: int) -> None:
    data = b"\xef\xbb\xbf" + b"".join([*EVENTS, *DONE])
    upstream.script = lambda body: [data[i : i + size] for i in range(0, len(data), size)]
    engine = OpenAIEngine(upstream.url)
    await engine.start()
    try:
        said = [delta.text async for delta in engine.generate(chat())]
    finally:
        await engine.aclose()
    assert "".join(said) == SAID


async def test_a_byte_order_mark_in_front_of_a_stream_of_messages(upstream: FakeUpstream) -> None:
    events: list[Any] = [
        begin(),
        start(0, "text"),
        piece(0, "text", "\ud83d"),
        piece(0, "text", "\ude00"),
        stop(0),
    ]
    frames = [
        b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode()
        for event in (*events, end(), STOP)
    ]
    upstream.script = lambda body: [b"\xef\xbb", b"\xbf" + frames[0], *frames[1:]]
    engine = MessagesEngine(upstream.url)
    await engine.start()
    try:
        said = [delta.text async for delta in engine.generate(chat())]
    finally:
        await engine.aclose()
    assert "".join(said) == SMILE
