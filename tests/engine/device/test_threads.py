"""A step takes every core if it gains more by the last one than the service loses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.device import threads
from engine.device.threads import SERVICE, Threads, best
from engine.device.trials import TrialRecord
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from tests.engine.device.decoders import logits_of, prompts_of


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "_DEFAULT", 8)
    monkeypatch.setattr(threads, "_num_cores", lambda: 8)


def used(chosen: Threads | None, num_tokens: int) -> int:
    assert chosen is not None
    before = torch.get_num_threads()
    try:
        chosen.use(num_tokens)
        return torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def test_a_short_step_leaves_a_core_and_a_long_one_takes_all() -> None:
    assert best({1: SERVICE, 2: 0.6 * SERVICE}) == 1
    assert best({1: 30 * SERVICE, 2: 16 * SERVICE}) == 2
    assert best({1: 30 * SERVICE, 2: 16 * SERVICE, 7: 5 * SERVICE, 8: 4.5 * SERVICE}) == 7
    assert best({1: 900 * SERVICE, 2: 480 * SERVICE, 7: 150 * SERVICE, 8: 130 * SERVICE}) == 8


def test_threads_that_do_not_help_are_not_used() -> None:
    assert best({1: 20 * SERVICE, 2: 10 * SERVICE, 4: 9.9 * SERVICE, 7: 9.9 * SERVICE, 8: 9.9 * SERVICE}) == 2


def test_a_process_with_one_core_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_num_cores", lambda: 1)
    assert used(Threads.by_trial(lambda rows: None, "", TrialRecord(None)), 1) == 1


def test_the_trial_counts_threads_up_to_the_cores() -> None:
    tried = []
    before = torch.get_num_threads()
    Threads.by_trial(lambda rows: tried.append(torch.get_num_threads()), "", TrialRecord(None))
    assert set(tried) == {1, 2, 4, 7, 8}
    assert torch.get_num_threads() == before


def test_a_step_is_given_the_threads_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def measured(run: object, rows: int, counts: list[int]) -> Any:
        tried.append(rows)
        return {str(n): {rows: 2 * rows * SERVICE / n} for n in counts}

    monkeypatch.setattr(threads, "_measured", measured)
    chosen = Threads.by_trial(lambda rows: None, "", TrialRecord(None))
    assert tried == [1, 16, 64]  # a step of 64 takes all cores, so longer ones do, too
    assert [used(chosen, n) for n in (1, 2, 16, 17, 64, 1000)] == [7, 7, 7, 8, 8, 8]


def test_a_setting_holds_for_every_step() -> None:
    chosen = Threads.fixed(3)
    assert used(chosen, 1) == used(chosen, 1000) == 3


def test_the_environment_holds_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Threads.fixed(None) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    chosen = Threads.fixed(None)
    assert used(chosen, 1) == used(chosen, 1000) == 8


@pytest.mark.parametrize("model_impl", ["weir", "transformers"])
def test_the_trial_leaves_no_trace_in_the_cache(
    model_impl: Any, tiny_model: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrialRecord, "open", lambda: TrialRecord(None))
    path, prompts = str(tiny_model("llama").path), prompts_of(9, 20)
    tried, fixed = (
        torch.stack(
            logits_of(
                ModelRunner.load(EngineConfig(model=path, model_impl=model_impl, num_threads=n)), prompts, []
            )
        )
        for n in (None, 1)
    )
    assert torch.allclose(tried, fixed, atol=1e-4)
