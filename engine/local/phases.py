"""The phases of a request in the in-process engine, as spans."""

from time import perf_counter

from engine.protocol.tracing import NO_SPAN, Span
from engine.scheduling.sequence import SequenceGroup


def trace_phases(span: Span, group: SequenceGroup) -> None:
    """Add children to `span` for a request that has just ended: `queue` until the first output is scheduled,
    `prefill` until the first token, `decode` until now. A phase that the request did not reach has none."""
    if span is NO_SPAN:
        return
    sequences = group.sequences
    starts = (
        ("queue", [seq.queued_at for seq in sequences if seq.queued_at]),
        ("prefill", [seq.scheduled_at for seq in sequences if seq.scheduled_at]),
        ("decode", [seq.first_token_at for seq in sequences if seq.first_token_at]),
    )
    reached = [(name, min(times)) for name, times in starts if times]
    ends = [*(began for _, began in reached[1:]), perf_counter()]
    for (name, began), ended in zip(reached, ends, strict=True):
        span.child(name, began=began).end(ended=ended)
