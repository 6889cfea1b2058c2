"""Who may add outputs to the in-process engine. Callers share its queue, and no caller may fill it alone."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from engine.protocol import CallerLimitError, GenerationRequest, QueueFullError
from engine.protocol.options import EngineConfig


class Admission:
    """Counts the outputs that run or wait, by caller. One request may go beyond a bound; the next may not."""

    def __init__(self, config: EngineConfig) -> None:
        self._num_places = config.max_num_seqs + config.max_queue_len
        self._limit = config.max_queue_len_per_caller
        self._num_running = min(config.max_num_seqs, config.max_num_seqs_per_caller or config.max_num_seqs)
        """Most outputs of one caller that run at the same time."""
        self._outputs: Counter[str] = Counter()

    def check(self, caller: str) -> None:
        """Raise `QueueFullError` if this caller may not add a request now.

        All places may be one caller's, while nobody else asks. If they are taken, a caller with less than an
        equal share of them still gets in, so the queue may become longer than its bound for a while.
        """
        own = self._outputs[caller]
        if self._limit is not None and own >= self._num_running + self._limit:
            raise CallerLimitError(
                f"Too many outputs wait for this caller: the limit is {self._limit}"
                " (max_queue_len_per_caller)."
            )
        share = self._num_places // len({*self._outputs, caller})
        if own >= max(1, share) and self._outputs.total() >= self._num_places:
            raise QueueFullError

    @contextmanager
    def counted(self, request: GenerationRequest) -> Iterator[None]:
        """Count the request's outputs inside the context."""
        self.add(request)
        try:
            yield
        finally:
            self.remove(request)

    def add(self, request: GenerationRequest) -> None:
        """Count the request's outputs, until `remove`."""
        self._outputs[request.caller] += request.num_candidates

    def remove(self, request: GenerationRequest) -> None:
        self._outputs[request.caller] -= request.num_candidates
        if not self._outputs[request.caller]:
            del self._outputs[request.caller]
