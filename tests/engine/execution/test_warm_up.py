"""The steps that are run before a cache has its size: as large as any that follows, and cheap to undo."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.device import cuda
from engine.device.batch import Batch
from engine.device.budget import DeviceBudget
from engine.device.kv_cache import KVCache
from engine.execution import model_runner, warm_up
from engine.execution.model_runner import ModelRunner
from engine.execution.warm_up import WarmUp
from engine.protocol import GenerationRequest
from engine.protocol.errors import DeviceLostError
from engine.protocol.options import EngineConfig
from engine.sampling.sampler import Sampler
from tests.engine.conftest import TinyCore, random_prompts
from tests.engine.device.classifiers import save_guard
from tests.engine.device.test_budget import GIB, FakeMemory
from tests.engine.execution.probes.made import make_probe, save_probe

Step = tuple[int, int, int, int]
"""All tokens of a step, those that attend as single tokens, the rows of logits, and the longest text."""


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> FakeMemory:
    """The memory of a device whose budget the models use in this test. They run on the CPU."""
    memory = FakeMemory()
    budget = DeviceBudget(memory)
    for module in (model_runner, warm_up):
        monkeypatch.setattr(module, "budget_of", lambda device: budget)
    return memory


def steps_of(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """The steps that its model computes from now on."""
    steps: list[Step] = []
    forward = runner.model.forward

    def recorded(batch: Batch, kv_cache: KVCache) -> Tensor:
        sizes = len(batch.token_ids), batch.num_singles, len(batch.logit_rows)
        steps.append((*sizes, int(batch.positions.max()) + 1))
        return forward(batch, kv_cache)

    monkeypatch.setattr(runner.model, "forward", recorded)
    return steps


def block_bytes(core: TinyCore) -> int:
    cache = core.core.runner.kv_cache
    return sum(pool[0].nbytes for pool in (*cache.keys.values(), *cache.values.values()))


def test_the_cache_has_what_the_step_leaves_of_the_share(
    tiny_core: Callable[..., TinyCore], memory: FakeMemory
) -> None:
    size = block_bytes(tiny_core(kv_cache_memory=2**20))
    memory.held, memory.peaks = 60 * GIB, [12 * GIB - 100 * size]
    assert tiny_core().core.runner.kv_cache.num_blocks == 100
    memory.peaks = [4 * size]
    assert tiny_core(only_guards=True).core.runner.kv_cache.num_blocks == 12, "an eighth of what both leave"
    memory.peaks = [GIB]
    assert tiny_core(max_num_seqs=2).core.runner.kv_cache.num_blocks == 2 * 512 / 16, "no more than it needs"
    memory.peaks = [12 * GIB]
    with pytest.raises(ValueError, match="gpu_memory_utilization"):
        tiny_core()
    assert tiny_core(kv_cache_memory=7 * size).core.runner.kv_cache.num_blocks == 7, "nothing is measured"


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {"max_num_batched_tokens": 100, "max_num_seqs": 5}),
        ("gemma3", {"max_num_batched_tokens": 64, "max_model_len": 40, "max_num_seqs": 100}),
        ("mistral", {"attention_backend": "sdpa", "num_speculative_tokens": 3}),
        ("gpt2", {"max_num_batched_tokens": 300, "max_model_len": 33}),
    ],
)
def test_no_step_is_larger_than_the_one_that_was_measured(
    family: str,
    settings: dict[str, Any],
    tiny_core: Callable[..., TinyCore],
    completion_request: Callable[..., GenerationRequest],
    memory: FakeMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory.peaks = [GIB]
    core = tiny_core(family, **settings)
    runner, config = core.core.runner, core.config
    steps = steps_of(runner, monkeypatch)
    memory.peaks = [GIB]
    WarmUp(runner.model, config, runner.max_model_len).measure(memory)
    measured = [max(sizes) for sizes in zip(*steps, strict=True)]
    steps.clear()
    sampling = {"temperature": 1.0, "ignore_eos": True}
    for prompt in random_prompts(20, longest=runner.max_model_len - 8):
        core.add(completion_request(tuple(prompt), max_tokens=6, **sampling))
    core.run()
    for tokens, _, rows, longest in steps:
        assert tokens <= measured[0]
        assert rows <= measured[2]
        assert longest <= measured[3]
    assert steps[-1][1] <= measured[1], "the last step decodes"


def test_classifiers_probes_and_draft_models_take_part(
    tiny_core: Callable[..., TinyCore], tiny_model: Any, tmp_path: Path, memory: FakeMemory
) -> None:
    llama: Path = tiny_model("llama").path
    probe = save_probe(tmp_path, make_probe(llama, "linear", ("model.norm",)))
    memory.peaks = [3 * GIB, GIB]
    core = tiny_core(probes=(probe,), speculative_model=str(llama), num_speculative_tokens=2)
    assert core.core.runner.draft is not None
    assert memory.peaks == []
    memory.peaks = [GIB]
    guard = str(save_guard(tmp_path / "guard").path)
    ModelRunner.load(EngineConfig(model=guard, num_threads=1))
    assert memory.peaks == []


def test_graphs_keep_the_memory_of_the_largest_and_logits_of_all(
    tiny_core: Callable[..., TinyCore], memory: FakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = tiny_core(kv_cache_memory=2**20, max_num_seqs=10)
    model = core.core.runner.model
    monkeypatch.setattr(model, "can_be_captured", True)
    on_stream: list[int] = []
    monkeypatch.setattr(warm_up, "on_capture_stream", lambda run, device: on_stream.append(len(run())))
    steps = steps_of(core.core.runner, monkeypatch)
    memory.peaks = [7, 50]
    needs = WarmUp(model, core.config, 100).measure(memory)
    num_bytes = core.core.runner.vocab_size * model.dtype.itemsize
    assert needs == (7, 50 + (1 + 2 + 4 + 8) * num_bytes)
    assert steps[-1] == (16, 16, 16, 100)
    assert on_stream == [16], "what libraries keep for the stream of captures is there before the cache"
    memory.peaks = [7]
    eager = core.config.model_copy(update={"enforce_eager": True})
    assert WarmUp(model, eager, 100).measure(memory) == (7, 0)
    assert on_stream == [16]


def test_a_device_that_is_lost_while_a_model_loads_ends_the_start(
    tiny_core: Callable[..., TinyCore], memory: FakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Sampler, "sample", fail)
    with pytest.raises(torch.AcceleratorError):
        tiny_core()
    monkeypatch.setattr(cuda, "synchronize", fail)
    with pytest.raises(DeviceLostError):
        tiny_core()


@pytest.mark.parametrize("where", [(Sampler, "sample"), (KVCache, "__init__")])
def test_a_model_that_finds_too_little_memory_says_so_with_numbers(
    where: Any, tiny_core: Callable[..., TinyCore], memory: FakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(*where, fail)
    memory.held = 79 * GIB
    with pytest.raises(ValueError, match=r"1\.0 GiB of the GPU's 80\.0 GiB are free"):
        tiny_core()
