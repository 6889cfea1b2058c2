"""Judges that need to see more of a text, and judges that object to several places at once."""

import pytest

from hooks.detect.coverage import Judged
from hooks.detect.detector import Match
from hooks.testing import play
from tests.hooks.builtin.streams import said
from tests.hooks.detect.judging import PatternGuard, PatternJudge


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


def test_in_mode_release_text_waits_while_the_judge_leaves_too_much_undecided() -> None:
    guard = PatternGuard(mode="release", window=2, num_undecided=6)
    guard._debounce = 0  # the guard expects a judge that decides all
    judgements = play(guard, list("0123456789")).judgements
    *before, _ = [(one.end, one.num_held) for one in judgements]
    assert before[:2] == [(1, 0), (2, 0)]
    assert all(end - held <= 2 + max(0, end - 6) for end, held in before)
    assert play(guard, list("0123456789")).content == "0123456789"


def test_a_judge_is_closed_after_its_rewind() -> None:
    guard = PatternGuard("bad", window=1, action="rewind")
    assert said(guard, ["so ", "bad ", "it ", "is"]) == "so "
    assert [judge.is_closed for judge in guard.judges_made] == [True]


class EachJudge(PatternJudge):
    """Objects to every match of its text at once."""

    async def judge(self, text: str, is_final: bool) -> Judged:
        judged = await super().judge(text, is_final)
        found = [Match(*one.span(), "found") for one in self.pattern.finditer(self.text)]
        return Judged(
            judged.num_judged, others=[one for one in found if one.start >= len(self.text) - len(text)]
        )


def test_a_judge_may_object_to_several_places_at_once() -> None:
    guard = PatternGuard("bad", window=32, first_window=32, action="redact")
    guard.open_judge = lambda chunk: EachJudge("bad", guard.wait, 0)  # type: ignore[method-assign]
    assert said(guard, list("bad, so bad, not so bad.")) == "[found], so [found], not so [found]."
