"""A device that is as late as it can be: it works in order, and only when the engine waits for a result."""

from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from engine.core.engine_core import EngineCore
from engine.sampling.sampler import Sampled


class Later:
    """A tensor on the device, which may not be computed yet."""

    device = torch.device("cpu")
    is_cuda = False

    def __init__(self, make: Callable[[], torch.Tensor], num_rows: int) -> None:
        self.make = make
        self._num_rows = num_rows

    def __len__(self) -> int:
        return self._num_rows

    def index_select(self, dim: int, index: torch.Tensor) -> "Later":
        return Later(lambda: self.make().index_select(dim, index), len(index))


class DelayedDevice:
    """Takes the place of a core's model and sampler. `events`: what the engine asked of it, in order."""

    def __init__(self, core: EngineCore) -> None:
        self.events: list[str] = []
        self._queue: deque[Callable[[], None]] = deque()
        self._run, self._sampler = core.runner.run, core.sampler
        core.runner.run = self.run  # type: ignore[assignment,method-assign]
        core.sampler = self  # type: ignore[assignment]

    def run(self, scheduled: Sequence[Any], drawn: Later | None = None) -> tuple[Later, torch.Tensor]:
        """`ModelRunner.run`, without prompt logprobs."""
        self.events.append("run" if drawn is None else "run ahead")
        spans = [_copied(s) for s in scheduled]
        logits = self._later(lambda: self._run(spans, None if drawn is None else drawn.make())[0])
        return Later(logits, sum(s.num_samples for s in spans)), torch.empty(0)

    def draw(self, logits: Later, states: Sequence[Any]) -> Any:
        """`Sampler.draw`."""
        self.events.append("draw")
        drawn = self._later(lambda: self._sampler.draw(logits.make(), states))

        def read() -> list[Sampled]:
            self.events.append("read")
            while self._queue and not drawn.is_done:
                self._queue.popleft()()
            return drawn().read()

        return SimpleNamespace(token_ids=Later(lambda: drawn().token_ids, len(states)), read=read)

    def _later(self, work: Callable[[], Any]) -> "_Work":
        self._queue.append(queued := _Work(work))
        return queued


class _Work:
    """Called by the queue, it works; called again, it gives the result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self.is_done = False

    def __call__(self) -> Any:
        if not self.is_done:
            self._result, self.is_done = self._work(), True
        return self._result


def _copied(s: Any) -> Any:
    """The share as it is now. The engine goes on with its sequence."""
    names = "start", "num_tokens", "num_samples", "prompt_logprob_positions", "drawn_row"
    own = {name: getattr(s, name) for name in names}
    return SimpleNamespace(**own, token_ids=list(s.token_ids), block_table=list(s.block_table))
