"""The calls of an upstream are those that its model made, however the server numbers and names them."""

from collections.abc import Callable, Iterator
from itertools import count, pairwise, zip_longest
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, SamplingParams
from engine.upstream.limits import TooMuchError
from engine.upstream.openai.stream import StreamTranslator
from engine.upstream.openai.whole import WholeTranslator
from tests.engine.upstream.openai.asked import chat

Call = tuple[str, list[str]]
"""A name, and the pieces of the arguments."""
Part = dict[str, Any]

VALUES = st.recursive(
    st.integers(0, 9) | st.text('ab"{}[]\\: é', max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("k{", max_size=1), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3).map(
    lambda one: orjson.dumps(one).decode()
)


@st.composite
def drawn_calls(draw: st.DrawFn) -> list[Call]:
    calls = []
    for _ in range(draw(st.integers(1, 4))):
        text = draw(ARGUMENTS)
        cuts = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=4)))
        bounds = [0, *cuts, len(text)]
        pieces = [text[a:b] for a, b in pairwise(bounds) if text[a:b]]
        calls.append((draw(st.sampled_from("fgh")), pieces))
    return calls


def part(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> Part:
    function = {"name": name, "arguments": arguments}
    given = {"index": index, "id": call_id, "type": "function" if name else None}
    return {k: v for k, v in given.items() if v is not None} | {
        "function": {k: v for k, v in function.items() if v is not None}
    }


def parts_of(
    calls: list[Call],
    *,
    index: Callable[[int, int], int | None] = lambda i, k: i,
    call_id: Callable[[int, int], str | None] = lambda i, k: f"c{i}" if k == 0 else None,
    name_everywhere: bool = False,
    heads: bool = True,
) -> list[list[Part]]:
    """The parts of each call. `index` and `call_id` get the call's number and the part's."""
    made = []
    for i, (name, pieces) in enumerate(calls):
        texts = ["", *pieces] if heads else pieces
        made.append(
            [
                part(index(i, k), call_id(i, k), name if k == 0 or name_everywhere else None, text)
                for k, text in enumerate(texts)
            ]
        )
    return made


def chunks_of(parts: list[list[Part]], *, interleaved: bool = False) -> Iterator[Part]:
    if interleaved:
        for row in zip_longest(*parts):
            yield from (one for one in row if one is not None)
    else:
        for one in parts:
            yield from one


def counter() -> Callable[[int, int], int]:
    numbers = count()
    return lambda i, k: next(numbers)


def fresh(i: int, k: int) -> str:
    return f"c{i}-{k}"


def stays(i: int, k: int) -> str:
    return f"c{i}"


DIALECTS: dict[str, Callable[[list[Call]], Iterator[Part]]] = {
    "as documented": lambda calls: chunks_of(parts_of(calls)),
    "interleaved": lambda calls: chunks_of(parts_of(calls), interleaved=True),
    "the index is always 0": lambda calls: chunks_of(parts_of(calls, index=lambda i, k: 0)),
    "index 0, ids in each part, interleaved": lambda calls: chunks_of(
        parts_of(calls, index=lambda i, k: 0, call_id=stays), interleaved=True
    ),
    "the index counts chunks": lambda calls: chunks_of(parts_of(calls, index=counter())),
    "the index counts chunks, the id stays": lambda calls: chunks_of(
        parts_of(calls, index=counter(), call_id=stays)
    ),
    "the index counts chunks, the id stays, the name is repeated": lambda calls: chunks_of(
        parts_of(calls, index=counter(), call_id=stays, name_everywhere=True, heads=False)
    ),
    "an id of its own in each part": lambda calls: chunks_of(parts_of(calls, call_id=fresh)),
    "no indices": lambda calls: chunks_of(parts_of(calls, index=lambda i, k: None)),
    "no indices, the id stays": lambda calls: chunks_of(
        parts_of(calls, index=lambda i, k: None, call_id=stays), interleaved=True
    ),
    "no ids": lambda calls: chunks_of(parts_of(calls, call_id=lambda i, k: None), interleaved=True),
    "no ids, the name is repeated": lambda calls: chunks_of(
        parts_of(calls, call_id=lambda i, k: None, name_everywhere=True, heads=False)
    ),
    "no ids, index 0": lambda calls: chunks_of(
        parts_of(calls, index=lambda i, k: 0, call_id=lambda i, k: None, heads=False)
    ),
    "neither ids nor indices": lambda calls: chunks_of(
        parts_of(calls, index=lambda i, k: None, call_id=lambda i, k: None, heads=False)
    ),
    "one id for all": lambda calls: chunks_of(parts_of(calls, call_id=lambda i, k: "x")),
    "one id for all, whole calls": lambda calls: (
        part(0, "x", name, "".join(pieces)) for name, pieces in calls
    ),
    "the head says index 0": lambda calls: chunks_of(parts_of(calls, index=lambda i, k: 0 if k == 0 else i)),
    "the name is repeated": lambda calls: chunks_of(parts_of(calls, call_id=stays, name_everywhere=True)),
    "indices from 1": lambda calls: chunks_of(parts_of(calls, index=lambda i, k: i + 1)),
    "whole calls, index 0": lambda calls: (
        part(0, f"c{i}", name, "".join(pieces)) for i, (name, pieces) in enumerate(calls)
    ),
    "whole calls, nothing else": lambda calls: (
        part(None, None, name, "".join(pieces)) for name, pieces in calls
    ),
    "objects": lambda calls: (
        part(i, f"c{i}", name, orjson.loads("".join(pieces))) for i, (name, pieces) in enumerate(calls)
    ),
}


def calls_of(deltas: list[Delta]) -> list[tuple[str, Any]]:
    said: dict[int, tuple[str, list[str]]] = {}
    for delta in deltas:
        if delta.tool_call is not None:
            said.setdefault(delta.tool_call.index, (delta.tool_call.name, []))[1].append(delta.text)
    assert list(said) == list(range(len(said))), "calls leave in their order"
    numbers = [delta.tool_call.index for delta in deltas if delta.tool_call]
    assert numbers == sorted(numbers), "one after another"
    return [(name, orjson.loads("".join(pieces))) for name, pieces in said.values()]


def translated(*deltas: Part, finish: str = "tool_calls") -> list[Delta]:
    translator = StreamTranslator(chat())
    chunks = [{"choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    made = [delta for chunk in chunks for delta in translator.feed(chunk)]
    return made + translator.finish(complete=True)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(calls=drawn_calls(), together=st.booleans())
def test_the_calls_are_those_that_were_made(dialect: str, calls: list[Call], together: bool) -> None:
    parts = list(DIALECTS[dialect](calls))
    deltas = [{"tool_calls": parts}] if together else [{"tool_calls": [one]} for one in parts]
    made = [(name, orjson.loads("".join(pieces))) for name, pieces in calls]
    assert calls_of(translated(*deltas)) == made


@given(calls=drawn_calls(), ids=st.sampled_from([None, "x", "c"]), as_objects=st.booleans())
def test_each_call_of_a_whole_message_is_one(calls: list[Call], ids: str | None, as_objects: bool) -> None:
    made = [(name, orjson.loads("".join(pieces))) for name, pieces in calls]
    tool_calls = [
        part(
            None, f"c{i}" if ids == "c" else ids, name, value if as_objects else orjson.dumps(value).decode()
        )
        for i, (name, value) in enumerate(made)
    ]
    choice = {"index": 0, "message": {"tool_calls": tool_calls}, "finish_reason": "tool_calls"}
    translator = WholeTranslator(chat())
    assert calls_of([*translator.feed({"choices": [choice]}), *translator.finish(complete=True)]) == made
    streamed = StreamTranslator(chat())
    assert calls_of([*streamed.feed({"choices": [choice]}), *streamed.finish(complete=True)]) == made


@pytest.mark.parametrize("call_id", ["c", None])
@given(at=st.sets(st.integers(1, 10)), after=st.sampled_from(["}", "}}", " ", "\n}", "</x>"]))
def test_text_after_whole_arguments_is_no_call_wherever_it_is_cut(
    call_id: str | None, at: set[int], after: str
) -> None:
    text = '{"x":1}' + after
    bounds = sorted({0, len(text), *(cut for cut in at if cut < len(text))})
    parts = [part(0, call_id, "f", text[a:b]) for a, b in pairwise(bounds)]
    deltas = translated(*({"tool_calls": [one]} for one in parts))
    calls = [(delta.tool_call.index, delta.text) for delta in deltas if delta.tool_call]
    assert {number for number, _ in calls} == {0}
    assert "".join("".join(said for _, said in calls).split()) == "".join(text.split())


@pytest.mark.parametrize("arguments", [None, "", {}])
def test_a_call_without_arguments_has_an_empty_object(arguments: Any) -> None:
    calls = [
        {"index": i, "id": f"c{i}", "function": {"name": name, "arguments": arguments}}
        for i, name in enumerate("fg")
    ]
    assert calls_of(translated({"tool_calls": calls})) == [("f", {}), ("g", {})]
    legacy = {"function_call": {"name": "f", "arguments": arguments}}
    assert calls_of(translated(legacy, finish="function_call")) == [("f", {})]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("null", "{}"),
        (" null ", "{}"),
        ('""', "{}"),
        ('" "', "{}"),
        ('"null"', "{}"),
        (r'"{\"a\": \"}\"}"', '{"a": "}"}'),
        (r'" {\"a\": 1}"', ' {"a": 1}'),
        ('"x"', '"x"'),
        (r'"{\"a\": 1"', r'"{\"a\": 1"'),
        ("nul", "nul"),
        ("5", "5"),
    ],
)
def test_arguments_that_are_a_string_or_null_are_an_object_wherever_they_are_cut(
    written: str, meant: str
) -> None:
    for at in range(len(written)):
        parts = [part(0, "c", "f", written[:at]), part(0, None, None, written[at:])]
        deltas = translated(*({"tool_calls": [one]} for one in parts), {"content": "Done."})
        assert "".join(delta.text for delta in deltas if delta.tool_call) == meant


def test_a_call_after_one_whose_arguments_are_a_string_does_not_wait_for_the_end() -> None:
    translator = StreamTranslator(chat())
    made: list[Delta] = []
    for one in (part(0, "c", "f", '"{}"'), part(1, "d", "g", "null"), part(2, "e", "h", '{"b"')):
        made += translator.feed({"choices": [{"delta": {"tool_calls": [one]}}]})
    assert [(d.tool_call.name, d.text) for d in made if d.tool_call] == [
        ("f", "{}"),
        ("g", "{}"),
        ("h", '{"b"'),
    ]


def test_a_call_without_a_list_around_it_is_read() -> None:
    parts = [part(0, "", "f", '{"a"'), part(0, "", None, ": 1}")]
    assert calls_of(translated(*({"tool_calls": one} for one in parts))) == [("f", {"a": 1})]


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_part_that_is_nothing_is_no_call(nothing: Any) -> None:
    parts = [[nothing], [nothing, part(0, "c", "f", "{}")], [nothing]]
    assert calls_of(translated(*({"tool_calls": some} for some in parts))) == [("f", {})]


def test_a_call_that_max_tokens_cuts_gets_no_arguments() -> None:
    head = part(0, "c", "f", None)
    assert [
        delta.text for delta in translated({"tool_calls": [head]}, finish="length") if delta.tool_call
    ] == [""]


def test_a_message_in_the_place_of_a_delta_is_read() -> None:
    message = {"role": "assistant", "content": "Hello", "reasoning_content": "So."}
    for deltas in (
        [{"delta": {}, "message": message}],
        [{"message": message}],
        [{"delta": None, "message": message}],
        [{"delta": {"role": "assistant", "content": ""}, "message": message}],
    ):
        translator = StreamTranslator(chat())
        made = [d for one in deltas for d in translator.feed({"choices": [{"finish_reason": "stop", **one}]})]
        made += translator.finish(complete=True)
        assert [(d.channel, d.text) for d in made] == [("reasoning", "So."), ("content", "Hello")]


def test_pieces_of_a_message_in_the_place_of_deltas_are_read() -> None:
    translator = StreamTranslator(chat())
    said = [{"role": "assistant", "content": text} for text in ("Hel", "lo", "")]
    deltas = [d for one in said for d in translator.feed({"choices": [{"message": one}]})]
    deltas += translator.feed({"choices": [{"message": said[-1], "finish_reason": "stop"}]})
    deltas += translator.finish(complete=True)
    assert "".join(delta.text for delta in deltas) == "Hello"


def test_reasoning_among_the_parts_of_a_content_is_reasoning() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "So."}]}
    both: Any = [{"type": "thinking", "thinking": "Then."}, {"type": "text", "text": "Hello"}]
    deltas = translated({"content": [thinking]}, {"content": both}, finish="stop")
    assert [(d.channel, d.text) for d in deltas if d.text] == [
        ("reasoning", "So."),
        ("reasoning", "Then."),
        ("content", "Hello"),
    ]


def test_a_whole_message_after_deltas_repeats_nothing() -> None:
    translator = StreamTranslator(chat())
    chunks: list[Any] = [{"choices": [{"delta": {"content": text}}]} for text in ("Hel", "lo")]
    chunks.append(
        {"choices": [{"message": {"content": "Hello", "tool_calls": [part(None, "c", "f", "{}")]}}]}
    )
    chunks.append({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})
    deltas = [d for one in chunks for d in translator.feed(one)] + translator.finish(complete=True)
    assert [(d.channel, d.text) for d in deltas if d.text] == [
        ("content", "Hel"),
        ("content", "lo"),
        ("tool_call", "{}"),
    ]


def test_arguments_that_wait_for_an_earlier_call_are_counted_when_they_come() -> None:
    translator = StreamTranslator(chat(sampling=SamplingParams(max_tokens=1)))

    def feed(index: int, text: str) -> list[Delta]:
        parts = [part(index, f"c{index}", "f", text)]
        return translator.feed({"choices": [{"index": 0, "delta": {"tool_calls": parts}}]})

    assert [delta.text for delta in feed(0, '{"x":')] == ['{"x":']
    with pytest.raises(TooMuchError):
        for _ in range(100):
            assert not feed(1, '{"' + "y" * 100)


def test_arguments_that_waited_are_counted_once() -> None:
    translator = StreamTranslator(chat(sampling=SamplingParams(max_tokens=1)))
    waits = '{"y":"' + "y" * 3000 + '"}'  # with max_tokens 1, an output may have 4352 characters
    parts = [part(0, "c0", "f", '{"x":'), part(1, "c1", "g", waits), part(0, None, None, "1}")]
    choice = {"index": 0, "delta": {"tool_calls": parts}, "finish_reason": "tool_calls"}
    deltas = [*translator.feed({"choices": [choice]}), *translator.finish(complete=True)]
    assert calls_of(deltas) == [("f", {"x": 1}), ("g", orjson.loads(waits))]
