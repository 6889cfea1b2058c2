"""Fragments are cut anywhere, and nothing of a forbidden span gets out.

`make bench NAME=leaks` runs longer.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.leaks import run
from hooks.api import Chunk, StreamContext
from hooks.pipeline.fragments import (
    Fragment,
    HeldText,
    TokenGroup,
    cut,
    cut_front,
    num_incomplete_of,
    spoil,
    text_of,
)
from tests.helpers import make_request


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


async def test_nothing_of_a_forbidden_span_gets_out() -> None:
    assert 0 < await run(3_000, seed=7) <= 3


@given(st.lists(st.text("ab😀", max_size=4)), st.integers(0, 40))
def test_taking_from_the_front_splits_as_cutting_does(texts: list[str], length: int) -> None:
    fragments = [Fragment(text, TokenGroup(())) for text in texts]
    length = min(length, sum(map(len, texts)))
    left = list(fragments)
    taken = cut_front(left, length)
    for ours, theirs in zip((taken, left), cut(fragments, length), strict=True):
        assert [_facts(f) for f in ours] == [_facts(f) for f in theirs]


def _facts(fragment: Fragment) -> tuple[object, ...]:
    return fragment.text, fragment.group, fragment.is_first, fragment.is_last, fragment.replaced


@given(st.lists(st.tuples(st.lists(st.text("ab😀", min_size=1, max_size=3), max_size=3), st.integers(0, 9))))
def test_held_text_is_the_last_part_of_what_came(steps: list[tuple[list[str], int]]) -> None:
    context = StreamContext(make_request(), 0, "content", None)
    held, came, out = HeldText(), "", ""
    chunks: list[tuple[Chunk, str]] = []
    for texts, wanted in steps:
        new = "".join(texts)
        chunk = Chunk(context, new, held=held.texts)
        chunks.append((chunk, text_of(list(held.fragments)) + new))
        num_held = min(wanted, held.num_characters + len(new))
        came += new
        out += text_of(held.hold_back(num_held, new, [Fragment(text) for text in texts]))
        assert text_of(list(held.copied().fragments)) == text_of(list(held.fragments))
        assert (out + text_of(list(held.fragments)), held.num_characters) == (came, num_held)
    # Earlier chunks go on reading their part, whatever is held by now.
    assert all(chunk.pending == pending for chunk, pending in chunks)


def test_text_is_incomplete_until_its_token_comes() -> None:
    one, other = (Fragment(text, TokenGroup(())) for text in ("ab", "cdef"))
    begin, end = other.split(3)
    assert num_incomplete_of([one, begin]) == 3
    assert num_incomplete_of([one, *begin.split(1)]) == 3
    assert [num_incomplete_of(part) for part in ([], [one], [end], [begin, end])] == [0] * 4
    spoil([end])  # the token never comes
    assert num_incomplete_of([one, begin]) == 0
