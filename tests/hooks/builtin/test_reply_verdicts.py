"""A reply's verdicts follow from its tokens' readings, however the tokens come; readings from logits."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hooks.builtin.stream_heads.debounce import Debounce, Offences
from hooks.builtin.stream_heads.heads import SAFE, HeadOptions, Level, LogitsError, Reading, heads_of
from hooks.builtin.stream_heads.reply_verdicts import ReplyVerdicts
from hooks.detect.detector import Match
from tests.hooks.builtin.token_classifiers import CATEGORIES, QWEN_LABELS, RISKS


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hook is called"


READINGS = st.sampled_from([SAFE, SAFE, Reading(Level.UNSAFE, "a"), Reading(Level.CONTROVERSIAL, "b")])
TOKENS = st.lists(st.tuples(READINGS, st.integers(0, 3)), max_size=20)
"""Each token's reading, and the characters that are whole at its end."""
CUTS = st.lists(st.integers(1, 6), max_size=20)
RULES = st.sampled_from(["single", "pair", "pair_strict"])


def told(
    tokens: Sequence[tuple[Reading, int]],
    cuts: Sequence[int],
    rule: Debounce,
    *,
    waits: bool = True,
    num_back: int = 0,
    num_lead: int = 0,
) -> tuple[list[Match], int | None]:
    """The offences, and where the text is open at the end. `num_back`: tokens that are taken back and told
    again at each cut."""
    ends = np.cumsum([length for _, length in tokens]).tolist()
    verdicts = ReplyVerdicts(Offences(rule), waits_for_end=waits)
    verdicts.begin_with(num_lead)
    matches: list[Match] = []
    num_judged, sizes = 0, [*cuts, len(tokens)]
    while True:
        kept = max(0, verdicts.num_tokens - num_back)
        verdicts.truncate(kept)
        upto = min(len(tokens), kept + num_back + sizes.pop(0))
        is_final = upto == len(tokens)
        verdicts.add(ends[kept:upto], [reading for reading, _ in tokens[kept:upto]])
        length = ends[upto - 1] if upto else 0
        judged = verdicts.judged(max(length, num_lead), is_final)
        assert num_judged <= judged.num_judged <= max(0, length - num_lead)
        assert all(0 <= one.start < one.end <= judged.num_judged for one in judged.others)
        num_judged = judged.num_judged
        matches += judged.others
        if is_final:
            assert num_judged == max(0, length - num_lead)
            return matches, judged.open_from


def characters(matches: Sequence[Match]) -> set[int]:
    return {place for match in matches for place in range(match.start, match.end)}


UNSAFE, CONTROVERSIAL = Reading(Level.UNSAFE, "a"), Reading(Level.CONTROVERSIAL, "b")


def test_an_unsafe_part_of_a_character_is_found_with_the_whole_character() -> None:
    for waits in (True, False):
        (found,), _ = told([(UNSAFE, 1), (UNSAFE, 0), (SAFE, 1)], [], "single", waits=waits)
        assert (found.start, found.end) == (0, 2)


def test_the_whole_characters_before_an_unsafe_part_without_an_end_are_found() -> None:
    for waits in (True, False):
        (found,), _ = told([(UNSAFE, 1), (UNSAFE, 0)], [], "single", waits=waits)
        assert (found.start, found.end) == (0, 1)


@example([(UNSAFE, 1), (UNSAFE, 0), (SAFE, 1)], [1], "single", 0)
@example([(UNSAFE, 0), (SAFE, 0), (UNSAFE, 1)], [], "single", 0)
@example([(CONTROVERSIAL, 1), (CONTROVERSIAL, 1), (UNSAFE, 1), (UNSAFE, 1)], [3], "pair_strict", 0)
@given(TOKENS, CUTS, RULES, st.integers(0, 4))
def test_offences_do_not_depend_on_how_many_tokens_come_at_a_time(
    tokens: list[tuple[Reading, int]], cuts: list[int], rule: Debounce, num_lead: int
) -> None:
    whole = told(tokens, [], rule, num_lead=num_lead)
    assert told(tokens, cuts, rule, num_lead=num_lead) == whole
    parts, open_from = told(tokens, cuts, rule, waits=False, num_lead=num_lead)
    assert (characters(parts), open_from) == (characters(whole[0]), whole[1])
    assert all(one.end <= other.start for one, other in pairwise(whole[0]))


@given(TOKENS, CUTS, RULES, st.integers(1, 3))
def test_tokens_that_are_taken_back_and_come_again_change_nothing(
    tokens: list[tuple[Reading, int]], cuts: list[int], rule: Debounce, num_back: int
) -> None:
    found, open_from = told(tokens, cuts, rule, num_back=num_back)
    whole = told(tokens, [], rule)
    assert (characters(found), open_from) == (characters(whole[0]), whole[1])


def plain(risk: list[float], category: list[float], options: HeadOptions) -> Reading:
    """The reading of one token, written out."""
    powers = np.exp(np.array(risk, float))
    probabilities = dict(zip(RISKS, powers / powers.sum(), strict=True))
    counting = ["Unsafe", "Controversial"] if options.strict else ["Unsafe"]
    name = CATEGORIES[int(np.argmax(category))]
    threshold = options.thresholds.get(name, options.threshold)
    best = max(counting, key=lambda level: probabilities[level])
    if threshold is None:
        counts = probabilities[best] == max(probabilities.values())
    else:
        counts = sum(probabilities[level] for level in counting) >= threshold
    return (
        Reading(Level[best.upper()], name) if counts and name in (options.categories or CATEGORIES) else SAFE
    )


LOGITS = st.lists(st.floats(-3, 3, width=32), min_size=5, max_size=5)


@given(
    st.lists(LOGITS, max_size=6),
    st.sampled_from([None, 0.3, 0.7]),
    st.booleans(),
    st.sampled_from([None, ["Fish"]]),
    st.sampled_from([{}, {"Fish": 0.5}]),
)
def test_many_tokens_are_read_as_each_alone(
    rows: list[list[float]],
    threshold: float | None,
    strict: bool,
    categories: list[str] | None,
    thresholds: dict[str, float],
) -> None:
    options = HeadOptions(threshold, strict, categories, None, thresholds)
    heads, _ = heads_of(QWEN_LABELS, options)
    logits = np.array(rows, np.float32).reshape(-1, 5)
    found = heads.read({"risk_level": logits[:, :3], "category": logits[:, 3:]})
    assert found == [plain(row[:3], row[3:], options) for row in rows]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 4])
def test_a_logit_that_is_no_number_is_an_error(wrong: float, column: int) -> None:
    heads, _ = heads_of(QWEN_LABELS, HeadOptions())
    logits: npt.NDArray[np.float32] = np.zeros((3, 5), np.float32)
    logits[1, column] = wrong
    with pytest.raises(LogitsError):
        heads.read({"risk_level": logits[:, :3], "category": logits[:, 3:]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (HeadOptions(thresholds={"Bird": 0.5}), "Bird is not one of Birds, Fish, Jailbreak"),
        (HeadOptions(categories=["Fish"], thresholds={"Birds": 0.5}), "Birds is not one of Fish"),
    ],
)
def test_a_threshold_of_a_category_that_it_does_not_act_on_is_refused(
    options: HeadOptions, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        heads_of(QWEN_LABELS, options)
