"""Coverage: when a judge is asked, and how much of a stream its verdicts cover."""

import asyncio
from typing import Any

import pytest

from engine.protocol import Delta
from hooks import Chunk, Verdict, emit
from hooks.detect.coverage import Coverage, Judged, JudgeError, pieces_of
from hooks.detect.coverage_guard import CoverageGuard
from hooks.detect.detector import Match
from tests.helpers import guard_all, make_token, pipeline_of


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no stream is played in a worker"


def coverage_of(mode: Any = "hold", window: int = 4, *pieces: str, **options: Any) -> Coverage:
    coverage = Coverage(mode, window, **options)
    for piece in pieces:
        coverage.add(piece, 1)
    return coverage


def test_the_first_questions_are_short_so_that_text_leaves_early() -> None:
    coverage = coverage_of("hold", 8)
    asked = []
    for _ in range(40):
        coverage.add("a", 1)
        if coverage.is_due:
            asked.append(len("".join(coverage.drain())))
    assert asked == [1, 2, 4, 8, 8, 8, 8]


def test_a_later_first_question_is_never_longer_than_the_window() -> None:
    coverage = coverage_of("hold", 4, first_window=16)
    for _ in range(4):
        assert not coverage.is_due
        coverage.add("a", 1)
    assert coverage.is_due


def test_the_judge_is_asked_about_all_that_has_come() -> None:
    coverage = coverage_of("hold", 4, "ab", "c", "", "def")
    assert coverage.drain() == ["ab", "c", "def"]
    assert not coverage.is_due
    assert coverage.num_asked == 6


def test_a_judge_of_windows_is_asked_about_whole_ones() -> None:
    coverage = coverage_of("hold", 4, "ab", "c", "d", "ef", "g", whole_windows=True)
    assert coverage.drain() == ["ab", "cd"]
    assert (coverage.has_unasked, coverage.is_due) == (False, False)
    coverage.add("hi", 2)
    assert coverage.drain() == ["efghi"]
    coverage.add("j", 1)
    assert coverage.drain(is_final=True) == ["j"]
    assert coverage.num_asked == coverage.num_characters == 10


def test_in_mode_release_the_stream_waits_once_a_window_and_the_debounce_are_out() -> None:
    coverage = coverage_of("release", 4, debounce=1)
    for piece in "abcde":
        coverage.add(piece, 1)
        assert not coverage.must_wait
    coverage.add("f", 1)
    assert coverage.must_wait
    coverage.drain()
    coverage.judged(Judged(1))
    assert not coverage.must_wait


def test_in_mode_release_the_judge_is_asked_at_half_a_window() -> None:
    coverage = coverage_of("release", 8, *"abc")
    assert not coverage.is_due
    coverage.add("d", 1)
    assert coverage.is_due
    assert not coverage.must_wait


def test_a_piece_that_is_judged_in_part_counts_as_a_whole() -> None:
    coverage = Coverage("release", 4)
    coverage.add("a" * 10, 5, num_written=20)
    coverage.drain()
    coverage.judged(Judged(3))
    assert (coverage.num_releasable, coverage.num_unjudged_written) == (3, 20)
    coverage.judged(Judged(10))
    assert (coverage.num_releasable, coverage.num_unjudged_written) == (10, 0)


def test_in_mode_release_no_more_may_be_out_than_a_window_and_the_debounce() -> None:
    coverage = coverage_of("release", 2, *"abcdef", debounce=1)
    assert coverage.num_releasable == 3
    coverage.drain()
    coverage.judged(Judged(1))
    assert coverage.num_releasable == 4


@pytest.mark.parametrize(
    "answer",
    [
        Judged(1),
        Judged(7),
        Judged(float("nan")),  # type: ignore[arg-type]
        Judged(4, Match(3, 5, "late")),
        Judged(4, Match(3, 3, "empty")),
        Judged(4, Match(-1, 2, "early")),
    ],
)
def test_an_answer_that_cannot_be_true_is_an_error(answer: Judged) -> None:
    coverage = coverage_of("hold", 4, "abc", "def")
    coverage.drain()
    coverage.judged(Judged(2))
    with pytest.raises(JudgeError):
        coverage.judged(answer)


class Counts:
    """Counts the pieces of each chunk."""

    def __init__(self) -> None:
        self.pieces: list[list[tuple[str, int]]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        self.pieces.append(pieces_of(chunk))
        return emit(chunk.pending)


def pieces(*deltas: Delta) -> list[list[tuple[str, int]]]:
    counts = Counts()
    asyncio.run(guard_all(pipeline_of(counts), [*deltas, Delta(finish_reason="stop")]))
    return counts.pieces[:-1]


def test_a_token_is_a_piece_with_the_textless_ones_before_it() -> None:
    tokens = (make_token("ab", 1), make_token("", 2, b"\xc3"), make_token("ü", 3, b"\xbc"))
    assert pieces(Delta(text="abü", tokens=tokens)) == [[("ab", 1), ("ü", 2)]]


def test_text_without_tokens_counts_by_its_length() -> None:
    assert pieces(Delta(text="a" * 9), Delta(text="b")) == [[("a" * 9, 3)], [("b", 1)]]


def test_a_token_that_claims_a_long_text_counts_as_several() -> None:
    text = "a" * 200
    assert pieces(Delta(text=text, tokens=(make_token(text, 1),))) == [[(text, 7)]]


def test_released_text_cannot_be_changed_later() -> None:
    with pytest.raises(ValueError, match="action: redact is for mode hold"):
        CoverageGuard(mode="release", action="redact")
