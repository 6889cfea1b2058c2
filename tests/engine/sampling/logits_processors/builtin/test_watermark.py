"""A watermark is found with its key, and only then."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors import Context, TokenIds
from engine.sampling.logits_processors.builtin.watermark import GreenList
from engine.sampling.logits_processors.load import ProcessorLoadError
from tests.engine.conftest import VOCAB_SIZE
from tests.engine.sampling.logits_processors.builtin.rows import registered_as
from tests.engine.sampling.logits_processors.processors import named


def test_the_processor_and_the_detector_have_the_same_green_list(built: Callable[..., Any]) -> None:
    processor = built("watermark", key="secret", gamma=0.4, delta=1.5)
    green = GreenList("secret", 0.4)
    for previous in (0, 5, 399):
        logits = torch.zeros(VOCAB_SIZE)
        processor(TokenIds([3, previous], 1), logits)
        assert logits.tolist() == [1.5 * green.is_green(previous, i) for i in range(VOCAB_SIZE)]


def test_each_key_and_previous_token_has_its_own_green_list_of_size_gamma() -> None:
    """Shares of 40,000 pairs are within 5 standard deviations: wrong once in a million."""
    one, other = GreenList("one", 0.25), GreenList("other", 0.25)
    lists = {
        key: [[g.is_green(p, t) for t in range(200)] for p in range(200)]
        for key, g in (("one", one), ("other", other))
    }
    for found in lists.values():
        assert abs(sum(map(sum, found)) - 10_000) < 5 * math.sqrt(40_000 * 0.25 * 0.75)
        assert len({tuple(line) for line in found}) == 200
    both = sum(a and b for x, y in zip(*lists.values(), strict=True) for a, b in zip(x, y, strict=True))
    assert abs(both - 2_500) < 5 * math.sqrt(40_000 * 0.0625 * 0.9375)


def test_no_watermark_is_found_in_random_texts() -> None:
    """The z-scores of 200 random texts are those of chance."""
    rng, green = random.Random(0), GreenList("secret")
    scores = [green.detect([rng.randrange(2000) for _ in range(150)]).z_score for _ in range(200)]
    assert abs(sum(scores) / 200) < 0.35
    assert max(scores) < 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_only_the_right_key_finds_a_watermark(temperature: float, start_engine: Any) -> None:
    args = {"key": "secret", "delta": 6.0}
    engine = await start_engine(logits_processors=(LogitsProcessorConfig("watermark", "watermark", args),))
    sampling = {"max_tokens": 150, "ignore_eos": True, "temperature": temperature, "seed": 1}
    prompts = [(5, 6, i) for i in range(10, 18)]
    scores: dict[tuple[bool, str], float] = {}
    for is_marked in (True, False):
        processors = named(watermark={}) if is_marked else ()
        found = await engine.complete(*prompts, logits_processors=processors, **sampling)
        pairs = [i for answer in found for i in answer.ids]
        for key in ("secret", "another"):
            scores[is_marked, key] = GreenList(key).detect(pairs).z_score
    assert scores[True, "secret"] > 8
    assert max(score for which, score in scores.items() if which != (True, "secret")) < 5


def test_repeated_pairs_count_once_and_an_empty_text_scores_zero() -> None:
    green = GreenList("secret")
    assert green.detect([4, 5] * 100).num_scored == 2
    nothing = green.detect([4])
    assert (nothing.num_scored, nothing.z_score, nothing.p_value) == (0, 0.0, 0.5)


@pytest.mark.parametrize("args", [{}, {"key": ""}, {"key": "k", "gamma": 1.0}])
def test_a_watermark_without_a_valid_key_or_gamma_is_refused_at_start(
    args: dict[str, Any], context: Context
) -> None:
    with pytest.raises(ProcessorLoadError):
        registered_as("watermark", context, **args)
