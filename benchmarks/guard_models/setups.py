"""A served model, and guards beside it in the same process, as a deployment has them."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.guard_models.models import TENTHS, make_probe, make_served, make_stream_guard
from benchmarks.guard_models.streams import Models
from engine.backends.local import LocalEngine
from engine.classification.local import LocalClassifier
from engine.config import EngineConfig
from engine.core.engine_core import EngineCore
from hooks.builtin.probe import Probe
from hooks.builtin.stream_guard import StreamGuard
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline

CACHE = 2**29
"""Bytes for each model's keys and values."""


class TimedEngine(LocalEngine):
    """Notes when its steps end. On a CPU these are CPU times of the engine thread, on which all models of the
    process take turns: other programs disturb them little."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.ends: list[tuple[float, float]] = []
        """For each step: monotonic seconds, and seconds of the thread."""

    def _load(self) -> EngineCore:
        core = super()._load()
        clock = time.thread_time if core.runner.device.type == "cpu" else time.perf_counter
        step = core.step

        def timed() -> Any:
            outputs = step()
            self.ends.append((time.perf_counter(), clock()))
            return outputs

        core.step = timed  # type: ignore[method-assign]
        return core


@dataclass(frozen=True)
class Setup:
    """What answers requests."""

    engine: TimedEngine
    pipeline: Pipeline


@asynccontextmanager
async def guarded(
    shape: str, folder: Path, guards: Mapping[str, dict[str, Any]], **options: Any
) -> AsyncIterator[dict[str, Setup]]:
    """The served model without a guard, by the name `nothing`, and with a stream guard of a tenth of its size
    for each of `guards`: arguments by names. The name `probe` stands for the same model with a probe.
    `options`: of the engines."""
    make_served(shape, options["dtype"], folder / "served")
    make_stream_guard(TENTHS[shape], folder / "guard", 4096)
    options |= {"kv_cache_memory": CACHE, "max_model_len": 4096}
    async with AsyncExitStack() as stack:

        async def started(model: Any) -> Any:
            await model.start()
            stack.push_async_callback(model.aclose)
            return model

        served = await started(TimedEngine(EngineConfig(model=str(folder / "served"), **options)))
        setups = {"nothing": Setup(served, Pipeline())}
        judging = None
        for name, arguments in guards.items():
            if name == "probe":
                make_probe(folder / "served", shape, folder / "probe.safetensors")
                probes = (str(folder / "probe.safetensors"),)
                config = EngineConfig(model=str(folder / "served"), probes=probes, **options)
                probed = await started(TimedEngine(config))
                setups[name] = Setup(probed, _pipeline(Probe(threshold=0.0, **arguments)))
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
