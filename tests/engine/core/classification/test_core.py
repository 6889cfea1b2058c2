"""Every text gets the logits of a plain reference, whatever other texts do and whatever the cache holds."""

import random
from collections.abc import Sequence as Seq
from typing import Any

import pytest
import torch

from benchmarks.simulated_device.device import SimulatedDevice, milliseconds
from engine.core.classification.core import new_text
from engine.device.layout import Span
from engine.scheduling.sequence import SequenceGroup
from tests.benchmarks.test_simulated_device import Clock
from tests.engine.core.classification.cores import Classified, kv_cache_memory
from tests.engine.device.classifiers import GUARD_LABELS, GuardModel
from tests.engine.device.decoders import prompts_of
from tests.engine.device.recorded import RecordingPool
from tests.engine.device.steps import graphs_of

CACHES: dict[str, dict[str, Any]] = {
    "cached": {},
    "not cached": {"enable_prefix_caching": False},
    # 20 blocks of 8 tokens, for texts of up to 100 tokens: they take each other's blocks.
    "cramped": {"block_size": 8, "max_model_len": 128, "max_num_batched_tokens": 32},
}


def classified(guard: GuardModel, cache: str, **options: Any) -> Classified:
    options = CACHES[cache] | options
    if cache == "cramped":
        options["kv_cache_memory"] = kv_cache_memory(guard.path, 160)
    return Classified(guard.path, **options)


def assert_as_plain(found: torch.Tensor, guard: GuardModel, ids: list[int], *, since: int = 0) -> None:
    expected = guard.logits(ids)[since:]
    assert torch.allclose(found, expected, atol=1e-4), (found - expected).abs().max()


def pieces(ids: list[int], cut: int) -> list[list[int]]:
    return [ids[i : i + cut] for i in range(0, len(ids), cut)]


@pytest.mark.parametrize("cut", [1, 7, 16, 1000])
@pytest.mark.parametrize("cache", CACHES)
def test_a_text_has_the_logits_of_a_plain_reference_at_every_cut(
    cut: int, cache: str, guard: GuardModel
) -> None:
    classifier = classified(guard, cache)
    for ids in prompts_of(1, 100):
        text = classifier.open()
        for piece in pieces(ids, cut):
            assert len(classifier.feed(text, piece)) == len(piece)
        assert_as_plain(classifier.rows(text), guard, ids)


def test_graphs_run_the_steps_of_texts_that_grow_by_several_tokens(guard: GuardModel) -> None:
    classifier = Classified(guard.path, cpu_kernels="torch")
    pool = RecordingPool()
    runner = classifier.core.runner
    with torch.inference_mode():
        runner.graphs = graphs_of(runner, max_rows=32, capture=pool)
    (ids,) = prompts_of(60)
    text = classifier.open()
    for piece in (ids[:1], ids[1:8], ids[8:40], ids[40:]):
        classifier.feed(text, piece)
    assert_as_plain(classifier.rows(text), guard, ids)
    assert pool.num_replays == 4


def test_texts_wait_for_their_own_streams_copy_alone(guard: GuardModel) -> None:
    device = SimulatedDevice(clock := Clock())  # type: ignore[arg-type]
    classifier = Classified(guard.path)
    runner = classifier.core.runner
    run = runner.run

    def timed(scheduled: Seq[Span]) -> tuple[torch.Tensor, torch.Tensor]:
        device.replay(16)
        return run(scheduled)

    with device.serving_copies(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run", timed)
        device.replay(256)  # a step of the served model
        text = classifier.open()
        with device.stream("guards"):
            classifier.feed(text, [5, 6])
    assert clock.seconds == pytest.approx(milliseconds(16) / 1e3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("cut", [1, 7, 16, 1000])
def test_on_cuda_a_text_has_the_logits_of_a_plain_reference(cut: int, guard: GuardModel) -> None:
    classifier = Classified(guard.path, device="cuda", dtype="float32")
    (ids,) = prompts_of(100)
    text = classifier.open()
    for piece in pieces(ids, cut):
        classifier.feed(text, piece)
    assert torch.allclose(classifier.rows(text), guard.logits(ids), atol=1e-3)


def test_logits_are_told_by_group(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    text = classifier.open()
    found = classifier.feed(text, prompts_of(5)[0])
    (told,) = classifier.outputs[text]
    assert {group: logits.shape for group, logits in told.items()} == {
        group: (5, len(labels)) for group, labels in GUARD_LABELS.items()
    }
    assert found[:, :3].tolist() == told["risk_level"].tolist()


@pytest.mark.parametrize("cache", CACHES)
def test_each_of_64_texts_is_judged_as_if_it_were_alone(cache: str, guard: GuardModel) -> None:
    """They grow at the same time; some are taken back a little, and some are closed in between."""
    rng, classifier = random.Random(3), classified(guard, cache, max_num_seqs=64)
    texts: dict[SequenceGroup, list[int]] = {classifier.open(): ids for ids in prompts_of(*range(30, 94))}
    fed = dict.fromkeys(texts, 0)
    while any(fed[text] < len(ids) for text, ids in texts.items()):
        for text, ids in texts.items():
            if fed[text] < len(ids) and rng.random() < 0.7:
                piece = ids[fed[text] : fed[text] + rng.choice([1, 3, 7, 16])]
                classifier.core.feed(text, piece)
                fed[text] += len(piece)
        doomed = classifier.open()
        classifier.core.feed(doomed, [5] * 20)
        classifier.step()
        classifier.close(doomed)
        classifier.run()
    assert classifier.core.block_manager.num_used == sum(
        len(seq.cache.block_table) for text in texts for seq in text.sequences
    )
    assert (classifier.core.stats().preemptions_total > 0) == (cache == "cramped")
    for text, ids in texts.items():
        assert_as_plain(classifier.rows(text), guard, ids)


@pytest.mark.parametrize("cache", CACHES)
def test_a_text_that_is_taken_back_goes_on_otherwise(cache: str, guard: GuardModel) -> None:
    rng, classifier = random.Random(1), classified(guard, cache)
    (ids,) = prompts_of(60)
    text, others = classifier.open(), [classifier.open() for _ in range(3)]
    now: list[int] = []
    for piece in pieces(ids, 6):
        kept = rng.randint(max(0, len(now) - 9), len(now))
        classifier.core.truncate(text, kept)
        classifier.check_blocks()
        now = [*now[:kept], *piece]
        found = classifier.feed(text, piece)
        assert_as_plain(found, guard, now, since=kept)
        for other in others:
            classifier.feed(other, now[:9])


def test_taking_back_a_shared_prompt_leaves_the_other_text_as_it_is(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    (ids,) = prompts_of(40)
    first, second = classifier.open(ids=ids), classifier.open(ids=ids)
    for text in (first, second):
        classifier.feed(text, [6])
    classifier.core.truncate(first, 40)
    classifier.core.truncate(second, 20)
    found = classifier.feed(second, [7, 8, 9])
    assert_as_plain(found, guard, [*ids[:20], 7, 8, 9], since=20)
    found = classifier.feed(first, [7, 8, 9])
    assert_as_plain(found, guard, [*ids, 7, 8, 9], since=40)


def test_tokens_that_texts_of_a_caller_begin_with_are_computed_once(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    (ids,) = prompts_of(40)
    first = classifier.feed(classifier.open("a", ids), [7, 8])
    second = classifier.feed(classifier.open("a", ids), [7, 8])
    assert classifier.num_computed == 42 + 10
    for found in (first, second):
        assert_as_plain(found, guard, [*ids, 7, 8], since=40)
    stats = classifier.core.stats()
    assert (stats.prefix_cache_queries_total, stats.prefix_cache_hits_total) == (80, 32)
    classifier.feed(classifier.open("b", ids), [7, 8])
    assert classifier.num_computed == 42 + 10 + 42, "callers share nothing"


def test_a_token_that_was_fed_is_found_by_no_other_text(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    (ids,) = prompts_of(64)
    classifier.feed(classifier.open(ids=ids[:16]), ids[16:])
    classifier.feed(classifier.open(), ids)
    assert classifier.num_computed == 64 + 64
    classifier.feed(classifier.open(ids=[*ids, 5]), [6])
    assert classifier.num_computed == 128 + 66 - 16


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("num_steps", [0, 1, 9])
def test_first_tokens_and_later_ones_are_computed_together_or_not(
    num_steps: int, cache: str, guard: GuardModel
) -> None:
    classifier = classified(guard, cache, max_num_prefill_tokens=16)
    (ids,) = prompts_of(60)
    text = classifier.open(ids=ids[:50])
    for _ in range(num_steps):
        classifier.step()
    assert classifier.outputs[text] == [], "nobody asked for their logits"
    found = classifier.feed(text, ids[50:])
    assert_as_plain(found, guard, ids, since=50)
    assert (len(classifier.outputs[text]), classifier.num_computed) == (1, 60)


def test_a_text_that_is_closed_before_its_first_step_costs_nothing(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    text = classifier.open(ids=[5] * 40)
    classifier.close(text)
    classifier.core.begin(text, [5])
    assert not classifier.core.has_work
    assert classifier.core.block_manager.num_used == 0


def test_a_text_finds_its_own_blocks_again_after_another_took_its_place(guard: GuardModel) -> None:
    """Only the last, partly filled block is lost while nobody has written to the others."""
    memory = kv_cache_memory(guard.path, 8 * 16)
    classifier = Classified(guard.path, max_model_len=128, kv_cache_memory=memory)
    (ids,) = prompts_of(60)
    text = classifier.open()
    classifier.feed(text, ids[:20])
    classifier.feed(text, ids[20:])
    classifier.feed(classifier.open(), prompts_of(66)[0])
    assert classifier.core.stats().preemptions_total == 1
    before = classifier.num_computed
    classifier.feed(text, [5])
    assert classifier.num_computed - before == 61 - 48
    assert_as_plain(classifier.rows(text), guard, [*ids, 5])


def test_a_step_computes_the_new_tokens_of_all_texts(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    texts = [classifier.open() for _ in range(4)]
    for number in (1, 8):
        for text in texts:
            classifier.core.feed(text, [5] * number)
        classifier.step()
    assert [len(classifier.rows(text)) for text in texts] == [9] * 4


def test_more_texts_than_places_take_turns(guard: GuardModel) -> None:
    classifier = Classified(guard.path, max_num_seqs=2)
    texts = [classifier.open(caller) for caller in "aaab"]
    for text in texts:
        classifier.core.feed(text, [5, 6, 7])
    classifier.step()
    assert [len(classifier.outputs[text]) for text in texts] == [1, 0, 0, 1]
    classifier.run()
    assert [len(classifier.outputs[text]) for text in texts] == [1, 1, 1, 1]


def test_logits_that_are_no_numbers_are_an_error_of_their_text_alone(
    guard: GuardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = Classified(guard.path)
    good, bad = classifier.open(), classifier.open()
    run = classifier.core.runner.run

    def broken(scheduled: Any) -> Any:
        logits, rest = run(scheduled)
        logits = logits.clone()
        logits[-1, 4] = torch.nan
        return logits, rest

    monkeypatch.setattr(classifier.core.runner, "run", broken)
    for text in (good, bad):
        classifier.core.feed(text, [5, 6, 7])
    classifier.run()
    assert [*classifier.errors] == [bad]
    assert "failed to classify" in str(classifier.errors[bad])
    assert_as_plain(classifier.rows(good), guard, [5, 6, 7])
    classifier.core.feed(bad, [8])
    assert not classifier.core.has_work, "a text that failed is closed"


def test_a_step_that_fails_is_an_error_of_its_texts(
    guard: GuardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = Classified(guard.path)
    text = classifier.open()
    with monkeypatch.context() as patch:
        patch.setattr(classifier.core.runner, "run", lambda _: 1 / 0)
        classifier.core.feed(text, [5, 6, 7])
        classifier.run()
    assert [*classifier.errors] == [text]
    assert classifier.core.block_manager.num_used == 0
    assert len(classifier.feed(classifier.open(), [5, 6, 7])) == 3


def test_closing_frees_the_blocks_and_a_text_can_be_closed_twice(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    idle, begun = classifier.open(), classifier.open()
    classifier.feed(idle, [5, 6, 7])
    classifier.core.feed(begun, [5] * 40)
    for text in (idle, begun, begun, new_text(classifier.config)):
        classifier.core.close(text)
    assert (classifier.core.block_manager.num_used, classifier.core.has_work) == (0, False)
    assert classifier.core.stats().aborted_total == 1


def test_a_model_without_heads_is_refused(tiny_model: Any) -> None:
    with pytest.raises(ValueError, match="does not classify tokens"):
        Classified(tiny_model("qwen3").path)


def test_half_precision_keeps_the_labels(guard: GuardModel) -> None:
    classifier = Classified(guard.path, dtype="bfloat16")
    for ids in prompts_of(50, 51):
        text = classifier.open()
        for piece in pieces(ids, 7):
            classifier.feed(text, piece)
        assert torch.cosine_similarity(classifier.rows(text), guard.logits(ids)).min() > 0.95


def test_too_little_memory_fails_the_newest_text_alone(guard: GuardModel) -> None:
    classifier = Classified(guard.path)
    run = classifier.core.runner.run

    def limited(scheduled: Seq[Span]) -> Any:
        if len(scheduled) > 2:
            raise torch.OutOfMemoryError
        return run(scheduled)

    classifier.core.runner.run = limited  # type: ignore[assignment,method-assign]
    prompts = prompts_of(9, 10, 11)
    texts = [classifier.open() for _ in prompts]
    for text, ids in zip(texts, prompts, strict=True):
        classifier.core.feed(text, ids)
    classifier.run()
    assert set(classifier.errors) == {texts[2]}
    for text, ids in zip(texts[:2], prompts, strict=False):
        assert_as_plain(classifier.rows(text), guard, ids)
