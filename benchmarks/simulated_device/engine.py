"""`EngineCore` on a simulated device: how busy it keeps the device, and the host's time for a token."""

import gc
import random
import statistics
import time
from dataclasses import asdict, dataclass
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.simulated_device.device import HostClock, SimulatedDevice, load_runner, word_ids
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from engine.scheduling import metrics
from engine.text.tokenizer import LocalTokenizer

ROWS = (1, 16, 64, 256)
WARM_UP_SECONDS = 4.0
WARM_UP_STEPS, STEPS = 12, 150


class Load(NamedTuple):
    """Streams, each a prompt and its output, and then the next one."""

    num_streams: int
    num_prompt_tokens: int
    num_output_tokens: int
    """On average."""

    def __str__(self) -> str:
        return f"{self.num_streams} streams of {self.num_prompt_tokens}/{self.num_output_tokens}"


LOADS = (Load(64, 500, 200), Load(64, 100, 200), Load(16, 500, 100))


@dataclass(frozen=True)
class LoadFigures:
    """Percent, but for `tokens`: tokens a second."""

    graph: float
    """Steps that replay a graph."""
    ahead: float
    """Steps that are begun before the last one's tokens are read."""
    busy: float
    """The time in which the device works."""
    tokens: float

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 1) for name, value in asdict(self).items()}


class Engine:
    """The engine of the demo model's shape. All outputs are random words."""

    def __init__(self, device: SimulatedDevice, max_num_seqs: int) -> None:
        self._clock = device.clock
        config = EngineConfig(
            model=str(MODEL_DIR),
            num_threads=1,
            max_num_seqs=max_num_seqs,
            kv_cache_memory=2**28,
            max_num_batched_tokens=4096,
            async_scheduling=True,
        )
        runner, tokenizer = load_runner(device)(config), LocalTokenizer.load(config.model)
        self.core = EngineCore(runner, tokenizer, config)
        self._processor = InputProcessor.make(tokenizer, runner, config)
        self._words = word_ids(tokenizer, runner.vocab_size)
        self._random = random.Random(0)

    def add(self, num_prompt_tokens: int, max_tokens: int) -> None:
        prompt = tuple(self._random.choices(self._words, k=num_prompt_tokens))
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0)
        request = GenerationRequest(
            request_id="r", model="m", endpoint="completions", prompts=(prompt,), sampling=sampling
        )
        self.core.add(self._processor.process(request))

    def add_to(self, load: Load) -> None:
        share = self._random.uniform(0.5, 1.5)
        self.add(load.num_prompt_tokens, max(2, int(load.num_output_tokens * share)))

    def run(self, load: Load, seconds: float) -> int:
        """The tokens of so many seconds. Each request that ends is followed by the next one."""
        end, num_tokens = self._clock.now() + seconds, 0
        while self._clock.now() < end:
            for _, delta in self.core.step():
                if isinstance(delta, Exception):
                    raise delta
                num_tokens += len(delta.tokens)
                if delta.finish_reason:
                    self.add_to(load)
        return num_tokens


def measure_load(load: Load, seconds: float) -> LoadFigures:
    device = SimulatedDevice(HostClock())
    engine = Engine(device, load.num_streams)
    # The budget of prompts learns from the device's time.
    with device.serving_copies(), patch.object(metrics, "perf_counter", device.clock.now):
        for _ in range(load.num_streams):
            engine.add_to(load)
        engine.run(load, WARM_UP_SECONDS)
        device.reset()
        begin = device.clock.now()
        num_tokens = engine.run(load, seconds)
        passed = device.clock.now() - begin
    return LoadFigures(
        graph=100 * device.num_replays / device.num_steps,
        ahead=100 * device.num_ahead / device.num_steps,
        busy=100 * device.busy_seconds / passed,
        tokens=num_tokens / passed,
    )


def host_microseconds(num_rows: int) -> float:
    """The engine's processor time for a token, while so many sequences decode."""
    device = SimulatedDevice(HostClock(), takes_time=False)
    engine = Engine(device, num_rows)
    core = engine.core
    for _ in range(num_rows):
        engine.add(20, 1000)  # none ends before the last measured step
    while core.scheduler.waiting or any(s.num_output_tokens < 1 for s in core.scheduler.running):
        core.step()
    for _ in range(WARM_UP_STEPS):
        core.step()
    gc.collect()
    times = []
    for _ in range(STEPS):
        begin = time.thread_time()
        core.step()
        times.append(time.thread_time() - begin)
    assert len(core.scheduler.running) == num_rows
    return statistics.median(times) / num_rows * 1e6
