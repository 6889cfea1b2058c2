"""Weir's logits processors on sequences of another engine, which calls them with its logits (contract 7)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from torch import Tensor

from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError, SamplingParams
from engine.protocol.processor_specs import LogitsProcessorSpec
from engine.sampling.logits_processors.api import TokenIds
from engine.sampling.logits_processors.registry import FIELD, ProcessorRegistry
from engine.sampling.logits_processors.run import ProcessorRun
from engine.sampling.sampling_state import SamplingState


class Joined(Sequence[int]):
    """A prompt's tokens and the tokens after it. The other engine keeps them apart."""

    def __init__(self, first: Callable[[], Sequence[int]], second: Callable[[], Sequence[int]]) -> None:
        self._first, self._second = first, second

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        first, second = self._first(), self._second()
        num = len(first)
        if isinstance(at, int):
            at = at + num + len(second) if at < 0 else at
            return first[at] if at < num else second[at - num]
        begin, end, step = at.indices(num + len(second))
        if step != 1:
            return [*first, *second][at]
        return [*first[begin:end], *second[max(0, begin - num) : max(0, end - num)]]

    def __len__(self) -> int:
        return len(self._first()) + len(self._second())

    def __iter__(self) -> Iterator[int]:
        yield from self._first()
        yield from self._second()


class Row:
    """One sequence of the other engine."""

    def __init__(
        self,
        registry: ProcessorRegistry,
        request_id: str,
        specs: Sequence[LogitsProcessorSpec],
        token_ids: TokenIds,
        extra: Mapping[str, Any] = {},
    ) -> None:
        """`token_ids`: shows the sequence's tokens at any time. `extra`: as in `GenerationRequest`."""
        sampling = SamplingParams(logits_processors=tuple(specs))
        self.state = SamplingState(request_id, sampling, token_ids, frozenset())
        self.error: LogitsProcessorError | None = None
        """Why the sequence has failed. Its processors are not called again."""
        request = GenerationRequest(
            request_id=request_id, model="", endpoint="completions", sampling=sampling, extra=extra
        )
        try:
            _, processors = registry.realize(request)
            self.state.processors = tuple(one.start(token_ids) for one in processors)
        except LogitsProcessorError as error:
            self.error = error
        except RequestError:
            self.error = LogitsProcessorError(FIELD)


def process(rows: Sequence[Row], logits: Tensor) -> Tensor:
    """The `logits` `[rows, vocab]` of these rows, none of which has failed, as their processors leave them. A
    row that fails now has its `error`, and its logits are of no use."""
    states = [row.state for row in rows]
    run = ProcessorRun(logits, states)
    shaped = run.shape(run.mask(logits, states), states)
    for number, error in run.failures(run.bests).items():
        assert isinstance(error, LogitsProcessorError)  # the other engine bans tokens, not the run
        rows[number].error = error
    return shaped
