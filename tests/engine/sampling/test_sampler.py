"""Parity with transformers' logits processors and warpers, and draws that follow the distribution.

Devices other than a CPU have operators of their own for some stages. Here they run on the CPU, too.
"""

import itertools
import math
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.protocol import RequestError, SamplingParams
from engine.sampling import sampler as sampler_module
from engine.sampling.logit_bias import LogitBias
from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.run import ProcessorRun
from engine.sampling.sampler import SampledToken, Sampler
from engine.sampling.sampling_state import SamplingState
from engine.text.alignment import LOGPROB_FLOOR

VOCAB_SIZE = 200
PENALTIES = {"repetition_penalty": 1.5, "frequency_penalty": 0.5}
CPU_DRAWS = [34, 176, 168, 85, 25, 145]
GPU_DRAWS = [144, 182, 101, 52, 142, 34]
"""Of the first six places with seed 42, where all tokens are equally likely."""


def state(
    output: list[int] | None = None, prompt: tuple[int, ...] = (1, 2, 3), **sampling: Any
) -> SamplingState:
    params = SamplingParams(**sampling)
    return SamplingState(
        "r",
        params,
        TokenIds([*prompt, *(output or [])], len(prompt)),
        eos_token_ids=frozenset() if params.ignore_eos else frozenset({9}),
        seed=params.seed,
        bias=LogitBias(params.logit_bias) if params.logit_bias else None,
    )


def logits_of(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * 3


def process(sampler: Sampler, logits: torch.Tensor, states: list[SamplingState]) -> torch.Tensor:
    return sampler._process(logits, states, ProcessorRun(logits, states))


@pytest.fixture(params=["as on a CPU", "as on a GPU"])
def sampler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    monkeypatch.setattr("engine.sampling.sampler.is_on_cpu", lambda logits: request.param == "as on a CPU")
    return Sampler(torch.device("cpu"), seed=0)


def test_every_combination_of_settings_gives_the_distribution_of_transformers(sampler: Sampler) -> None:
    """All rows are in one batch, and each row has its own settings."""
    grid = itertools.product(
        (0.3, 1.0, 1.7), (0, 1, 7, 500), (0.0, 0.5, 0.95, 1.0), (0.0, 0.1, 1.0), (1.0, 1.3, 0.8)
    )
    states, expected = [], []
    settings = list(grid)
    logits = logits_of(len(settings))
    for row, (temperature, top_k, top_p, min_p, repetition_penalty) in enumerate(settings):
        seq = state(
            [5, 6, 5],
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
        states.append(seq)
        theirs = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(repetition_penalty)])
        theirs.append(TemperatureLogitsWarper(temperature))
        if top_k:
            theirs.append(TopKLogitsWarper(top_k))
        if top_p < 1:
            theirs.append(TopPLogitsWarper(top_p))
        if min_p:
            theirs.append(MinPLogitsWarper(min_p))
        expected.append(theirs(torch.LongTensor([[*seq.token_ids]]), logits[row : row + 1].clone())[0])
    before = logits.clone()
    processed = process(sampler, logits, states)
    assert torch.equal(logits, before), "the given logits are not changed"
    assert torch.equal(processed.isinf(), torch.stack(expected).isinf())
    torch.testing.assert_close(processed.softmax(-1), torch.stack(expected).softmax(-1), atol=1e-5, rtol=0)


def test_penalties_follow_the_formula_of_openai(sampler: Sampler) -> None:
    logits = logits_of(2)
    seq = state([5, 6, 5], presence_penalty=0.5, frequency_penalty=0.25, logit_bias={5: 2.0, 7: -100.0})
    expected = logits.clone()
    expected[0, 5] += 2.0 - 0.5 - 2 * 0.25
    expected[0, 6] -= 0.5 + 0.25
    expected[0, 7] -= 100
    torch.testing.assert_close(process(sampler, logits, [seq, state([5, 6])]), expected)


def test_the_tensors_of_a_logit_bias_are_made_once(sampler: Sampler) -> None:
    logits, seq = logits_of(2), state([5], logit_bias=dict.fromkeys(range(30), 1.5))
    other = state([5], logit_bias={7: 2.0, 3: -1.0})
    expected = logits.clone()
    expected[0, :30] += 1.5
    expected[1, 7] += 2.0
    expected[1, 3] -= 1.0
    made = []
    for _ in range(2):
        assert torch.equal(process(sampler, logits, [seq, other]), expected)
        assert seq.bias is not None
        made.append(seq.bias.tensors(logits))
    assert made[0] is made[1]


def test_min_tokens_masks_eos_and_stop_ids_until_reached(sampler: Sampler) -> None:
    logits = logits_of(4)
    logits[:, 9] = 50
    states = [
        state([5], min_tokens=2, temperature=0.0),
        state([5, 6], min_tokens=2, temperature=0.0),
        state([5], min_tokens=2, temperature=0.0, ignore_eos=True),
        state([5], min_tokens=2, temperature=0.0, ignore_eos=True, stop_token_ids=(9,)),
    ]
    ids = [token.id for token in sampler.sample(logits, states) if token]
    theirs = MinLengthLogitsProcessor(5, 9)(torch.ones(1, 4), logits[:1].clone()).argmax()
    assert ids == [theirs, 9, 9, logits[3].topk(2).indices[1]]


def test_a_shaper_never_revives_a_masked_token(sampler: Sampler) -> None:
    logits = logits_of(1)
    logits[0, 9] = 50
    seq = state([9], min_tokens=5, logit_bias={9: 100.0}, repetition_penalty=0.1, presence_penalty=-2.0)
    assert process(sampler, logits, [seq])[0, 9] == float("-inf")


def test_a_row_without_a_token_to_draw_gets_the_reason(sampler: Sampler) -> None:
    logits = logits_of(4)
    logits[1] = float("nan")
    logits[2, 17] = float("nan")
    everything = tuple(range(VOCAB_SIZE))
    states = [state(), state(), state(temperature=0.0), state(min_tokens=3, stop_token_ids=everything)]
    first, *not_numbers, masked = sampler.sample(logits, states)
    assert isinstance(first, SampledToken)
    assert not_numbers == [None, None]
    assert isinstance(masked, RequestError)


def test_greedy_takes_the_most_likely_after_shaping(sampler: Sampler) -> None:
    logits = logits_of(3)
    best, second = logits[1].topk(2).indices.tolist()
    states = [state(temperature=0.0), state(temperature=0.0, logit_bias={best: -100.0}), state()]
    sampled = sampler.sample(logits, states)
    assert [token.id for token in sampled[:2] if token] == [logits[0].argmax(), second]


def test_seeded_draws_do_not_depend_on_the_batch(sampler: Sampler) -> None:
    logits = logits_of(3)
    alone, among = state(seed=5), [state(), state(seed=5), state(seed=6, top_k=3)]
    for _ in range(20):
        one, three = sampler.sample(logits[1:2], [alone]), sampler.sample(logits, among)
        assert one[0] == three[1]


def test_a_seed_for_the_engine_makes_unseeded_draws_repeatable() -> None:
    logits, states = logits_of(8), [state() for _ in range(8)]
    draws = [Sampler(torch.device("cpu"), seed=s).sample(logits, states) for s in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_draws_follow_the_distribution(sampler: Sampler) -> None:
    """Each count of 20,000 draws from 4 tokens is within 5 standard deviations: wrong once in a million."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = torch.full((20000, VOCAB_SIZE), float("-inf"))
    logits[:, :4] = probs.log()
    sampled = sampler.sample(logits, [state()] * 20000)
    counts = torch.bincount(torch.tensor([token.id for token in sampled if token]), minlength=4)
    assert ((counts - 20000 * probs).abs() < 5 * (20000 * probs * (1 - probs)).sqrt()).all()


def test_a_token_without_probability_is_never_drawn(sampler: Sampler) -> None:
    logits = torch.full((5000, VOCAB_SIZE), float("-inf"))
    logits[:, [1, VOCAB_SIZE - 2]] = 0.0
    logits[:, 40] = -15.0
    drawn = {token.id for token in sampler.sample(logits, [state()] * len(logits)) if token}
    assert {1, VOCAB_SIZE - 2} <= drawn <= {1, 40, VOCAB_SIZE - 2}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_token_without_probability_is_never_drawn_on_a_gpu() -> None:
    """A GPU's running sums may grow where nothing is added. Half of the tokens are masked."""
    logits = torch.randn(512, 100_000, device="cuda")
    logits[:, ::2] = float("-inf")
    sampler = Sampler(logits.device, seed=0)
    for _ in range(100):
        assert all(token and token.id % 2 for token in sampler.sample(logits, [state()] * len(logits)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_draw_does_not_wait_for_a_gpu() -> None:
    """All stages but logits processors. Torch raises where the host would wait."""
    states = [
        state([5], min_tokens=3, logprobs=2),
        state([5], logit_bias={4: 1.0}, repetition_penalty=1.2, frequency_penalty=0.5, seed=1),
        state([5], top_k=9, top_p=0.9, min_p=0.1, logprobs=1, logprob_token_ids=(3, 4)),
        state([5], temperature=0.0),
    ]
    states[3].rewind(1, {7})
    logits = logits_of(4).to("cuda")
    sampler = Sampler(logits.device, seed=0)
    sampler.sample(logits, states)  # what is made once may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        drawn = sampler.draw(logits, states)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(drawn.read())


def test_unlikely_tokens_of_a_large_vocabulary_are_drawn_as_often_as_they_should() -> None:
    """Half of the probability is one token's; the rest is shared by 100,000. Wrong once in a million."""
    logits = torch.zeros(400, 100_001)
    logits[:, 7] = math.log(100_000)
    sampled = Sampler(torch.device("cpu"), seed=0).sample(logits, [state()] * 400)
    ids = [token.id for token in sampled if token]
    assert abs(ids.count(7) - 200) < 50
    rest = [i for i in ids if i != 7]
    assert abs(sum(i > 50_000 for i in rest) - len(rest) / 2) < 2.5 * len(rest) ** 0.5
    assert len(set(rest)) > 0.95 * len(rest)


def test_a_row_s_seeded_draw_does_not_depend_on_unseeded_rows(sampler: Sampler) -> None:
    logits = logits_of(3)
    alone, among = state(seed=5), [state(), state(), state(seed=5)]
    for _ in range(5):
        one, three = sampler.sample(logits[2:], [alone]), sampler.sample(logits, among)
        assert one[0] == three[2]


def test_logprobs_are_of_the_raw_distribution_unless_configured_otherwise(sampler: Sampler) -> None:
    logits = logits_of(3)
    states = [state(logprobs=3, top_k=1, seed=1), state(logprobs=0, temperature=0.0), state(seed=2)]
    raw = logits.log_softmax(-1)
    first, second, third = (token for token in sampler.sample(logits, states) if token)
    top = raw[0].topk(3)
    assert first.logprobs is not None
    assert first.logprobs.logprob == pytest.approx(top.values[0].item())
    assert [i for i, _ in first.logprobs.top] == top.indices.tolist()
    assert [logprob for _, logprob in first.logprobs.top] == pytest.approx(top.values.tolist())
    assert second.logprobs is not None
    assert second.logprobs.logprob == pytest.approx(raw[1].max().item())
    assert second.logprobs.top == []
    assert third.logprobs is None

    processed = Sampler(torch.device("cpu"), logprobs_mode="processed_logprobs")
    (token,) = processed.sample(logits[:1], [state(logprobs=3, top_k=1)])
    assert token is not None
    assert token.logprobs is not None
    assert token.logprobs.logprob == 0
    assert [logprob for _, logprob in token.logprobs.top] == [0, LOGPROB_FLOOR, LOGPROB_FLOOR]


def test_tokens_asked_for_are_the_alternatives_in_their_order(sampler: Sampler) -> None:
    logits = logits_of(2)
    states = [state(logprobs=3, logprob_token_ids=(7, 150, 3), temperature=0.0), state(logprobs=2)]
    raw = logits.log_softmax(-1)
    first, second = (token.logprobs for token in sampler.sample(logits, states) if token)
    assert first is not None
    assert first.logprob == pytest.approx(raw[0].max().item())
    assert [i for i, _ in first.top] == [7, 150, 3]
    assert [logprob for _, logprob in first.top] == pytest.approx(raw[0, [7, 150, 3]].tolist())
    assert second is not None
    assert [i for i, _ in second.top] == raw[1].topk(2).indices.tolist()


def test_seeded_draws_follow_the_distribution(sampler: Sampler) -> None:
    """Each count of 20,000 draws from 4 tokens is within 5 standard deviations: wrong once in a million."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = torch.full((20000, VOCAB_SIZE), float("-inf"))
    logits[:, [3, 70, 71, VOCAB_SIZE - 1]] = probs.log()
    sampled = sampler.sample(logits, [state(seed=seed) for seed in range(20000)])
    ids = torch.tensor([token.id for token in sampled if token])
    counts = torch.stack([(ids == i).sum() for i in (3, 70, 71, VOCAB_SIZE - 1)])
    assert counts.sum() == 20000
    assert ((counts - 20000 * probs).abs() < 5 * (20000 * probs * (1 - probs)).sqrt()).all()


def test_one_seed_draws_independently_at_every_place_and_after_every_rewind(sampler: Sampler) -> None:
    """Two tokens are as good. Of 400 pairs of draws, about half are pairs of equal tokens."""
    logits = torch.full((400, VOCAB_SIZE), float("-inf"))
    logits[:, [10, 150]] = 0.0
    here = [state([5] * place, seed=7) for place in range(400)]
    behind = [state([5] * (place + 1), seed=7) for place in range(400)]
    again = [state([5] * place, seed=7) for place in range(400)]
    for one in again:
        one.rewind(one.num_output_tokens, ())
    first, *others = ([t.id for t in sampler.sample(logits, s) if t] for s in (here, behind, again))
    assert {*first} == {10, 150}
    for other in others:
        assert 150 < sum(a == b for a, b in zip(first, other, strict=True)) < 250


def test_a_seed_gives_the_same_tokens_in_every_process(sampler: Sampler) -> None:
    sampled = sampler.sample(torch.zeros(6, VOCAB_SIZE), [state([5] * place, seed=42) for place in range(6)])
    expected = CPU_DRAWS if sampler_module.is_on_cpu(torch.zeros(1)) else GPU_DRAWS
    assert [token.id for token in sampled if token] == expected


def test_rows_that_join_and_leave_keep_the_counts_of_the_others(sampler: Sampler) -> None:
    """A sequence that ends leaves its row of the counts to a later one."""
    rng = torch.Generator().manual_seed(3)
    running: list[SamplingState] = []
    for step in range(40):
        if step % 3 == 0:
            running.append(state([], (step,), **PENALTIES))
        if step % 7 == 6:
            running.pop(0)
        if step % 5 == 4:
            running[-1].token_ids._ids[1:] = []
            running[-1].rewind(0, ())
        logits = logits_of(len(running), step)
        fresh = [state([*s.token_ids[1:]], (s.token_ids[0],), **PENALTIES) for s in running]
        torch.testing.assert_close(
            process(sampler, logits, running), process(Sampler(logits.device), logits, fresh)
        )
        for one in running:
            token_id = int(torch.randint(VOCAB_SIZE, (), generator=rng))
            one.token_ids._ids.append(token_id)  # type: ignore[attr-defined]
    assert len(sampler._counts.seen) <= 16, "rows are used again"
