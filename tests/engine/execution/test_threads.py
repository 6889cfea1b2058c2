"""Steps whose operators are long take every core; others leave one to the service."""

import pytest
import torch
from transformers import Qwen3Config

from engine.execution import threads
from engine.execution.threads import LONG, READING, Threads

SMALL, LARGE = ({"hidden_size": h, "intermediate_size": 3 * h} for h in (384, 2048))


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "_DEFAULT", 8)
    monkeypatch.setattr(threads, "_num_cores", lambda: 8)


def used(chosen: Threads, num_tokens: int) -> int:
    before = torch.get_num_threads()
    try:
        chosen.use(num_tokens)
        return torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def test_a_short_step_leaves_a_core_and_a_long_one_takes_all() -> None:
    chosen = Threads.of(None, Qwen3Config(**SMALL))
    assert used(chosen, 1) == used(chosen, 8) == 7
    assert used(chosen, 64) == 8


def test_reading_a_large_models_weights_is_long_for_one_token() -> None:
    assert 2048 * 3 * 2048 * READING > LONG
    assert used(Threads.of(None, Qwen3Config(**LARGE)), 1) == 8


def test_a_process_with_one_core_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_num_cores", lambda: 1)
    assert used(Threads.of(None, Qwen3Config(**SMALL)), 1) == 1


def test_a_setting_holds_for_every_step() -> None:
    chosen = Threads.of(3, Qwen3Config(**SMALL))
    assert used(chosen, 1) == used(chosen, 1000) == 3


def test_the_environment_holds_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    chosen = Threads.of(None, Qwen3Config(**SMALL))
    assert used(chosen, 1) == used(chosen, 1000) == 8
