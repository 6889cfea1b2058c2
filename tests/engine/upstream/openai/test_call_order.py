"""Parts of several calls, put in order."""

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, ToolCall, Usage
from engine.upstream.openai.call_order import CallOrder

TEXTS = ('{"a": "}\\"\\\\"}', "{}", '{"b": [{"c": "\\\\"}]}', "")


def parts_of(index: int, cuts: list[int]) -> list[Delta]:
    text = TEXTS[index]
    places = [0, *sorted({min(cut, len(text)) for cut in cuts}), len(text)]
    call = ToolCall(index, f"f{index}")
    return [Delta(text=text[a:b], channel="tool_call", tool_call=call) for a, b in pairwise(places)]


def put(order: CallOrder, parts: list[Delta]) -> list[tuple[int, str]]:
    released: list[Delta] = []
    for number, part in enumerate(parts):
        part.usage = Usage(0, number)
        released += order.put(part)
    released += order.flush(Usage(0, len(parts)))
    counts = [delta.usage.completion_tokens for delta in released if delta.usage]
    assert counts == sorted(counts), "a request's totals never decrease"
    return [(delta.tool_call.index, delta.text) for delta in released if delta.tool_call]


@given(cuts=st.lists(st.lists(st.integers(0, 20), max_size=5), min_size=4, max_size=4), rng=st.randoms())
def test_each_call_comes_whole_and_after_the_one_before_it(cuts: list[list[int]], rng: Random) -> None:
    left = [parts_of(index, cuts[index]) for index in range(4)]
    begun = 0
    drawn: list[Delta] = []
    while any(left):
        index = rng.choice([i for i in range(4) if i <= begun and left[i]])
        begun += index == begun  # calls are numbered as they begin
        drawn.append(left[index].pop(0))
    released = put(CallOrder(), drawn)
    indexes = [index for index, _ in released]
    assert indexes == sorted(indexes)
    for index, text in enumerate(TEXTS):
        assert "".join(piece for one, piece in released if one == index) == text


def test_parts_in_order_never_wait() -> None:
    order = CallOrder()
    for index in range(3):
        for part in parts_of(index, [1, 3]):
            assert order.put(part) == [part]


def test_blanks_behind_a_whole_call_are_left_out() -> None:
    order = CallOrder()
    parts = [*parts_of(0, []), *parts_of(1, [])]
    call = parts[0].tool_call
    assert put(order, [*parts, Delta(text="\n", channel="tool_call", tool_call=call)]) == [
        (0, TEXTS[0]),
        (1, TEXTS[1]),
    ]
