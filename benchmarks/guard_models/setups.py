"""A served model, and guards beside it in the same process, as a deployment has them."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.guard_models.models import TENTHS, make_probe, make_served, make_stream_guard
from benchmarks.guard_models.streams import Models, Stream, run_many
from engine.core.engine_core import EngineCore
from engine.local.classification import LocalClassifier
from engine.local.engine import LocalEngine
from engine.protocol.options import EngineConfig
from hooks.builtin.probe import Probe
from hooks.builtin.stream_guard import StreamGuard
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline

CACHE = 2**29
"""Bytes for each model's keys and values."""


class StepEnd(NamedTuple):
    seconds: float
    """Monotonic."""
    cpu_seconds: float
    """CPU time of the engine thread, on which all models of the process take turns."""
    num_decoding: int
    """Outputs that have tokens and get more."""


class TimedEngine(LocalEngine):
    """Notes when its steps end, and can be without its probes for a while."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.ends: list[StepEnd] = []

    def _load(self) -> EngineCore:
        core = super()._load()
        self._probes = core.runner.probe_heads
        if core.runner.graphs is not None:
            raise ValueError("graphs hold the work of probes, and cannot be without: set enforce_eager")
        step = core.step

        def timed() -> Any:
            outputs = step()
            running = core.scheduler.running
            num_decoding = sum(seq.num_output_tokens > 0 and seq.finish_reason is None for seq in running)
            self.ends.append(StepEnd(time.perf_counter(), time.thread_time(), num_decoding))
            return outputs

        core.step = timed  # type: ignore[method-assign]
        return core

    def use_probes(self, wanted: bool) -> None:
        """Have the probes score the tokens of later requests, or not. No request may be running."""
        probes = self._probes if wanted else None
        self._core.call(lambda core: core.runner.use_probes(probes))


@dataclass(frozen=True)
class Setup:
    """One way to answer requests. All ways share an engine, and so one copy of the weights: two copies lie at
    other places of memory, and their steps take different times."""

    engine: TimedEngine
    pipeline: Pipeline
    is_probed: bool = False

    async def answer(self, prompts: list[str], max_tokens: int) -> list[Stream]:
        """All at the same time, while nothing else runs."""
        self.engine.use_probes(self.is_probed)
        # Prompts that were computed without probes have no scores in the cache.
        salt = "scored" if self.is_probed else None
        return await run_many(self.pipeline, self.engine, prompts, max_tokens, cache_salt=salt)


@asynccontextmanager
async def guarded(
    shape: str, folder: Path, guards: Mapping[str, Mapping[str, Any]], **options: Any
) -> AsyncIterator[dict[str, Setup]]:
    """The served model without a guard, by the name `nothing`, and with a stream guard of a tenth of its size
    for each of `guards`: arguments by names. The name `probe` stands for a probe, and `again` for no guard
    either. `options`: of the engines."""
    make_served(shape, options["dtype"], folder / "served")
    make_stream_guard(TENTHS[shape], folder / "guard", 4096)
    options |= {"kv_cache_memory": CACHE, "max_model_len": 4096}
    async with AsyncExitStack() as stack:

        async def started(model: Any) -> Any:
            await model.start()
            stack.push_async_callback(model.aclose)
            return model

        probe = folder / "probe.safetensors"
        make_probe(folder / "served", shape, probe)
        config = EngineConfig(model=str(folder / "served"), probes=(str(probe),), **options)
        served = await started(TimedEngine(config))
        setups = {"nothing": Setup(served, Pipeline())}
        judging = None
        for name, arguments in guards.items():
            if name == "again":
                setups[name] = setups["nothing"]
                continue
            if name == "probe":
                hook = Probe(threshold=0.0, **arguments)
                setups[name] = Setup(served, _pipeline(hook), is_probed=True)
                continue
            if judging is None:
                config = EngineConfig(model=str(folder / "guard"), only_guards=True, **options)
                judging = await started(LocalClassifier(config))
            guard = StreamGuard(folder / "guard", threshold=1.0, timeout=600.0, **arguments)
            await guard.start(Models(classifier=judging))
            setups[name] = Setup(served, _pipeline(guard))
        yield setups


def _pipeline(hook: object) -> Pipeline:
    return Pipeline([LoadedHook.of("guard", hook)])
