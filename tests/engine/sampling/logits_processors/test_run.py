"""Logits processors run in a draw: both forms, in order, within limits, and isolated from each other."""

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.core.input_processor import InputProcessor
from engine.protocol import LogitsProcessorError
from engine.sampling.logits_processors import PythonProcessorSpec
from engine.sampling.logits_processors.run import ProcessorRun
from engine.sampling.sampler import Sampled, SampledToken, Sampler
from engine.scheduling.sequence import Sequence
from tests.engine.conftest import VOCAB_SIZE, completion
from tests.engine.sampling.logits_processors.processors import ALL, EVERYTHING, Ban, Only, kinds, named

INF = float("inf")


@pytest.fixture(scope="module")
def processor(tiny_core: Callable[..., Any]) -> InputProcessor:
    found: InputProcessor = tiny_core(logits_processors=ALL).processor
    return found


@pytest.fixture
def sequence(processor: InputProcessor) -> Callable[..., Sequence]:
    """`sequence([output ids], only={...}, sampling={"temperature": ...})`."""

    def make(output: Any = (), sampling: Any = None, **params: Any) -> Sequence:
        request = completion((5, 6, 7), logits_processors=named(**params), **(sampling or {}))
        (seq,) = processor.process(request).sequences
        seq.token_ids += output
        return seq

    return make


@pytest.fixture
def sampler() -> Sampler:
    return Sampler(torch.device("cpu"), seed=0)


def logits_of(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * 3


def processed(sampler: Sampler, logits: Tensor, sequences: list[Sequence]) -> tuple[Tensor, dict[int, Any]]:
    states = [seq.sampling for seq in sequences]
    run = ProcessorRun(logits, states)
    return sampler._process(logits, states, run), run.failures(run.bests)


def sample(sampler: Sampler, logits: Tensor, sequences: list[Sequence]) -> list[Sampled]:
    return sampler.sample(logits, [seq.sampling for seq in sequences])


def test_the_row_form_changes_its_row_in_place_and_sees_the_sequence_so_far(
    sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.1
    logits = logits_of(3)
    sequences = [sequence([9, 10], likes={"back": 2}), sequence([9, 10]), sequence([11], likes={"by": -4.0})]
    expected = logits.clone()
    expected[0, 9] += 3
    expected[2, 11] -= 4
    before = logits.clone()
    assert torch.equal(processed(sampler, logits, sequences)[0], expected)
    assert torch.equal(logits, before), "the given logits are not changed"


def test_rows_of_one_batch_processor_are_one_call_whatever_their_parameters(
    sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.2
    logits, bans = logits_of(4), [[1], [2, 3], [4, 5, 6]]
    sequences = [*(sequence(ban={"ban": ids}) for ids in bans), sequence()]
    Ban.calls.clear()
    rows, _ = processed(sampler, logits, sequences)
    assert Ban.calls == [bans]
    for row, ids in enumerate([*bans, []]):
        assert rows[row].isneginf().nonzero().flatten().tolist() == ids


def test_a_mask_that_lists_tokens_masks_them_in_its_own_row(
    sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:
    lists: list[list[int]] = [[1], [], [2, 3, 2], [VOCAB_SIZE - 1]]
    logits = logits_of(5)
    rows, failed = processed(
        sampler, logits, [*(sequence(lists={"lists": ids}) for ids in lists), sequence()]
    )
    assert not failed
    for row, ids in enumerate([*lists, []]):
        assert rows[row].isneginf().nonzero().flatten().tolist() == sorted({*ids})


def test_a_mask_with_an_attribute_of_that_name_is_called(
    sampler: Sampler, sequence: Callable[..., Sequence], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor that was written before may keep its own tokens in `forbidden`."""
    monkeypatch.setattr(Only, "forbidden", [3], raising=False)
    rows, failed = processed(sampler, logits_of(1), [sequence(only={"token_id": 5})])
    assert not failed
    assert rows[0].isfinite().nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize(
    "lists", ["raise", "text", None, 5, [1, None], [0.5], [VOCAB_SIZE], [-1], list(range(VOCAB_SIZE))]
)
def test_a_list_that_is_not_one_of_tokens_fails_its_own_row(
    lists: Any, sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.6
    """An index that the logits do not have would end a GPU."""
    logits = logits_of(3)
    good = [sequence(lists={"lists": [4]}) for _ in range(2)]
    rows, failed = processed(sampler, logits, [good[0], sequence(lists={"lists": lists}), good[1]])
    assert [*failed] == [1]
    assert isinstance(failed[1], LogitsProcessorError)
    for row in (0, 2):
        assert rows[row].isneginf().nonzero().flatten().tolist() == [4]


def test_the_dict_of_a_batch_processor_lives_as_long_as_its_sequence_and_has_its_tokens(
    sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.2
    sequences = [sequence(counts={"weight": 0.5}), sequence(counts={})]
    for step in range(1, 4):
        logits = logits_of(2, seed=step)
        rows, failed = processed(sampler, logits, sequences)
        assert not failed
        expected = logits.clone()
        for row, weight in enumerate((0.5, 1.0)):
            expected[row, list(set(sequences[row].token_ids))] += weight * step
        torch.testing.assert_close(rows, expected)
        for seq in sequences:
            seq.token_ids.append(20 + step)


def test_masks_run_before_shapers_in_the_order_registered(
    sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.5
    """`only` is named last and still runs first. `counts` is registered after `likes`."""
    logits = logits_of(2)
    one = sequence(likes={"by": 2.0}, counts={}, only={"token_id": 7})
    other = sequence(only={"token_id": 7}, counts={}, likes={"by": 2.0})
    assert [s.entry.name for s in one.sampling.processors] == [
        s.entry.name for s in other.sampling.processors
    ]
    rows, _ = processed(sampler, logits[[0, 0]], [one, other])
    assert torch.equal(rows[0], rows[1])
    assert rows[0, 7] == logits[0, 7] + 3
    assert rows[0].isneginf().sum() == VOCAB_SIZE - 1


@pytest.mark.parametrize("name", ["revives", "revivesmask"])
def test_no_processor_revives_a_masked_token(
    name: str, sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.5
    sampling = {"min_tokens": 2, "stop_token_ids": (8,), "logit_bias": {9: 5.0}}
    rows, failed = processed(
        sampler, logits_of(1), [sequence(sampling=sampling, ban={"ban": [9]}, **{name: {}})]
    )
    assert not failed
    assert rows[0].isneginf().nonzero().flatten().tolist() == [1, 8, 9]


def test_a_mask_raises_no_logit(sampler: Sampler, sequence: Callable[..., Sequence]) -> None:
    logits = logits_of(1)
    rows, _ = processed(sampler, logits, [sequence(revivesmask={})])
    assert torch.equal(rows, logits.clamp(max=0))


def test_a_processor_may_raise_a_token_to_infinity(
    sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:
    for temperature in (0.0, 0.3, 1.0):
        seq = sequence(sampling={"temperature": temperature}, likes={"by": 1e38})
        (token,) = sample(sampler, logits_of(1), [seq])
        assert isinstance(token, SampledToken)
        assert token.id == 7


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_masks_and_shapers_also_apply_to_greedy_requests(
    temperature: float, sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.5
    sampling = {"temperature": temperature}
    sequences = [
        sequence(sampling=sampling, only={"token_id": 33}),
        sequence(sampling=sampling, likes={"by": 99.0}),
    ]
    assert [t.id for t in sample(sampler, logits_of(2), sequences) if isinstance(t, SampledToken)] == [33, 7]


FAILURES = ["raise", "exit", "panic", "shape", "sparse", "nan", "empty"]


@pytest.mark.parametrize(
    ("name", "how"),
    [("fails", "none"), *((name, how) for name in ("fails", "failsalone", "failsmask") for how in FAILURES)],
)
def test_a_failing_processor_fails_its_own_row_and_changes_no_other(
    name: str, how: str, sampler: Sampler, sequence: Callable[..., Sequence], caplog: pytest.LogCaptureFixture
) -> None:  # contract 7.6
    logits = logits_of(4)
    good = {"likes": {"by": 1.0}, "counts": {}, "ban": {"ban": [3]}}

    def make(how: str) -> Sequence:
        return sequence(**{**good, name: {"how": how}})

    rows, failed = processed(sampler, logits, [make(""), make(how), make(""), sequence()])
    assert [*failed] == [1]
    assert isinstance(failed[1], LogitsProcessorError)
    assert failed[1].processor == name
    for row in (0, 2):
        alone, _ = processed(sampler, logits[row : row + 1], [make("")])
        assert torch.equal(rows[row], alone[0])
    assert torch.equal(rows[3], logits[3])
    assert name in caplog.text


def test_a_batch_that_failed_is_not_counted_twice(
    sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:
    """`counts` checks the number of its calls and the lengths it saw. One row skips a length, so it fails."""
    sequences = [sequence(counts={}) for _ in range(3)]
    for output in ([], [9]):
        sequences[1].token_ids += output * 2
        sequences[0].token_ids += output
        sequences[2].token_ids += output
        _, failed = processed(sampler, logits_of(3), sequences)
    assert [*failed] == [1]
    for row in (0, 2):
        state = sequences[row].sampling.processors[0].params or {}
        assert (state["calls"], state["lengths"]) == (2, [0, 1])


def test_masks_that_leave_no_token_fail_their_row(
    sampler: Sampler, sequence: Callable[..., Sequence], caplog: pytest.LogCaptureFixture
) -> None:  # contract 7.5
    sequences = [
        sequence(only={"token_id": 3}, ban={"ban": [3]}),
        sequence(only={"token_id": 3}),
        sequence(sampling={"min_tokens": 1}, only={"token_id": 1}),
    ]
    first, second, third = sample(sampler, logits_of(3), sequences)
    assert isinstance(first, LogitsProcessorError)
    assert isinstance(second, SampledToken)
    assert isinstance(third, LogitsProcessorError)
    assert "no token to draw" in caplog.text


def test_the_first_of_several_that_fail_a_row_is_named_when_the_draw_is_read(
    sampler: Sampler, sequence: Callable[..., Sequence], caplog: pytest.LogCaptureFixture
) -> None:  # contract 7.6
    """Until then, the host has not waited for the logits that the processors left."""
    sequences = [
        sequence(failsmask={"how": "nan"}, failsalone={"how": "raise"}),
        sequence(failsmask={"how": "raise"}, failsalone={"how": "nan"}),
        sequence(failsmask={"how": ""}, failsalone={"how": "nan"}),
    ]
    drawn = sampler.draw(logits_of(3), [seq.sampling for seq in sequences])
    assert "it left" not in caplog.text
    errors = drawn.read()
    assert [e.processor for e in errors if isinstance(e, LogitsProcessorError)] == [
        "failsmask",
        "failsmask",
        "failsalone",
    ]


def test_processors_are_not_blamed_for_a_model_s_invalid_logits(
    sampler: Sampler, sequence: Callable[..., Sequence], caplog: pytest.LogCaptureFixture
) -> None:
    logits = logits_of(2)
    logits[0, 17] = float("nan")
    first, second = sample(sampler, logits, [sequence(likes={}), sequence(likes={})])
    assert first is None
    assert isinstance(second, SampledToken)
    assert not caplog.text


def test_a_draw_without_processors_copies_nothing(sequence: Callable[..., Sequence]) -> None:
    logits, states = logits_of(2), [sequence().sampling, sequence().sampling]
    run = ProcessorRun(logits, states)
    assert run.mask(logits, states) is run.shape(logits, states) is logits


def test_no_processor_can_reach_the_logits_of_other_rows(
    processor: InputProcessor, sampler: Sampler, sequence: Callable[..., Sequence]
) -> None:  # contract 7.6
    held: list[Tensor] = []

    class Holds:
        def __call__(self, input_ids: Any, logits: Tensor) -> None:
            for one in held:
                one.fill_(float("nan"))
            held.append(logits)

    request = completion((5, 6), logits_processors=(PythonProcessorSpec(Holds),))
    sequences = [*processor.process(request).sequences, sequence(likes={}), sequence()]
    for step in range(3):
        logits = logits_of(3, seed=step)
        rows, failed = processed(sampler, logits, sequences)
        assert not failed
        assert torch.equal(rows[0], logits[0])
        assert torch.equal(rows[2], logits[2])
    assert all(one.untyped_storage().nbytes() == one.nbytes == VOCAB_SIZE * 4 for one in held)


def test_each_row_of_a_mixed_batch_is_bit_for_bit_the_same_as_alone(
    tiny_core: Callable[..., Any], sampler: Sampler
) -> None:  # contract 7.6
    processor = tiny_core(logits_processors=EVERYTHING).processor

    def make(kind: dict[str, Any]) -> Sequence:
        specs = kind.get("processors", ())
        fields = {name: value for name, value in kind.items() if name != "processors"}
        request = completion((5, 6, 5, 6, 2), logits_processors=specs, max_tokens=30, **fields)
        (seq,) = processor.process(request).sequences
        return seq

    shaped = {"repetition_penalty": 1.3, "temperature": 0.7, "top_p": 0.9, "min_tokens": 3, "top_k": 20}
    asked = [*kinds(1), *({**kind, **shaped} for kind in kinds(1))]
    together, alone = ([make(kind) for kind in asked] for _ in range(2))
    for step in range(8):
        logits = logits_of(len(asked), seed=step)
        rows, failed = processed(sampler, logits, together)
        assert not failed
        for i, seq in enumerate(alone):
            assert torch.equal(rows[i], processed(sampler, logits[i : i + 1], [seq])[0][0])
            for one in (together[i], seq):
                one.token_ids.append(int(rows[i].argmax()))


def test_the_log_names_the_failed_processor_and_its_request(
    sampler: Sampler, sequence: Callable[..., Sequence], caplog: pytest.LogCaptureFixture
) -> None:
    for how, reason in (
        ("raise", r"RuntimeError at \S+/processors\.py:\d+"),
        ("nan", "it left something that is not a number"),
        ("shape", r"it returned shape \(\S+\) for shape \(\S+\)"),
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            (error,) = sample(sampler, logits_of(1), [sequence(failsalone={"how": how})])
        assert isinstance(error, LogitsProcessorError)
        assert str(error) == "A logits processor failed, so the request was ended."
        (message,) = caplog.messages
        assert re.fullmatch(f"logits processor failsalone failed request r: {reason}", message)
        assert "hush" not in caplog.text


def test_the_traceback_is_logged_at_level_debug(
    sampler: Sampler, sequence: Callable[..., Sequence], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        sample(sampler, logits_of(1), [sequence(failsalone={"how": "raise"})])
    assert "the model said: hush" in caplog.text


class Compresses:
    """A shaper whose result differs if it runs before or after any stage of the sampler. It makes no tokens
    equally likely: top-p may drop any of those."""

    def __call__(self, input_ids: Any, logits: Tensor) -> None:
        logits.copy_(compressed(logits))


def compressed(logits: Tensor) -> Tensor:
    return torch.where(logits > 1, 1 + (logits - 1) / 8, logits)


def test_the_stages_run_in_the_order_of_the_contract(processor: InputProcessor, sampler: Sampler) -> None:
    """Contract 7.5: masks, bias and penalties, shapers, temperature, top-k, top-p, min-p."""
    logits = logits_of(1)
    logits[0, :3] = 20.0
    filters = {"temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.02}
    request = completion(
        (5, 6, 7, 6),
        min_tokens=3,
        logit_bias={1: 9.0, 2: 9.0, 30: 6.0, 6: 4.0},
        repetition_penalty=1.5,
        presence_penalty=0.7,
        frequency_penalty=0.3,
        logits_processors=(PythonProcessorSpec(Compresses), *named(ban={"ban": [2, 5]})),
        **filters,
    )
    (seq,) = processor.process(request).sequences
    seq.token_ids += [6, 9]
    rows, failed = processed(sampler, logits, [seq])
    expected = logits.clone()
    expected[0, [1, 2, 5]] = -INF
    expected[0, [30, 6]] += torch.tensor([6.0, 4.0])
    expected = RepetitionPenaltyLogitsProcessor(1.5)(torch.tensor([seq.token_ids]), expected)
    expected[0, [6, 9]] -= 1.0
    expected = compressed(expected)
    for warp in (
        TemperatureLogitsWarper(0.5),
        TopKLogitsWarper(40),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.02),
    ):
        expected = warp(torch.LongTensor([seq.token_ids]), expected)
    assert not failed
    assert torch.equal(rows.isneginf(), expected.isneginf())
    torch.testing.assert_close(rows, expected)
