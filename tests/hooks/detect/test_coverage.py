"""Coverage: when a judge is asked, and how much of a stream its verdicts cover."""

from typing import Any

import pytest

from hooks.detect.coverage import Coverage, CoverageGuard, Judged, JudgeError, num_tokens_of
from hooks.detect.detector import Match
from hooks.testing import play, stream_of


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
            asked.append(len(coverage.take()))
    assert asked == [1, 2, 4, 8, 8, 8, 8]


def test_a_later_first_question_is_never_longer_than_the_window() -> None:
    coverage = coverage_of("hold", 4, first_window=16)
    for _ in range(4):
        assert not coverage.is_due
        coverage.add("a", 1)
    assert coverage.is_due


def test_the_judge_is_asked_about_all_that_has_come() -> None:
    coverage = coverage_of("hold", 4, "ab", "c", "", "def")
    assert coverage.take() == "abcdef"
    assert not coverage.is_due
    assert coverage.num_asked == 6


def test_in_mode_release_the_stream_waits_once_a_window_and_the_debounce_are_out() -> None:
    coverage = coverage_of("release", 4, debounce=1)
    for piece in "abcde":
        coverage.add(piece, 1)
        assert not coverage.must_wait
    coverage.add("f", 1)
    assert coverage.must_wait
    coverage.take()
    coverage.judged(Judged(1))
    assert not coverage.must_wait


def test_in_mode_release_the_judge_is_asked_at_half_a_window() -> None:
    coverage = coverage_of("release", 8, *"abc")
    assert not coverage.is_due
    coverage.add("d", 1)
    assert coverage.is_due
    assert not coverage.must_wait


def test_a_piece_that_is_judged_in_part_counts_in_part_rounded_up() -> None:
    coverage = Coverage("release", 4)
    coverage.add("a" * 10, 5, num_written=20)
    coverage.take()
    coverage.judged(Judged(3))
    assert (coverage.num_unjudged_tokens, coverage.num_unjudged_written) == (4, 14)
    coverage.judged(Judged(10))
    assert (coverage.num_unjudged_tokens, coverage.num_unjudged_written) == (0, 0)


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
    coverage.take()
    coverage.judged(Judged(2))
    with pytest.raises(JudgeError):
        coverage.judged(answer)


class Counts:
    """Counts the tokens of each chunk."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def __call__(self, chunk: Any) -> Any:
        from hooks import emit

        self.counts.append(num_tokens_of(chunk))
        return emit(chunk.pending)


def test_text_without_tokens_counts_by_its_length() -> None:
    counts = Counts()
    play(counts, stream_of(["a" * 9, "a" * 200]))
    assert counts.counts[:2] == [1, 7]  # one token that claims 200 characters counts as several


def test_released_text_cannot_be_changed_later() -> None:
    with pytest.raises(ValueError, match="action: redact is for mode hold"):
        CoverageGuard(mode="release", action="redact")
