"""The metrics of hooks. Where there are several policies, each metric has the label `policy`."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import Metric

from engine.protocol.stats import Histogram
from hooks.decisions.tally import CALL_SECONDS, HELD_SECONDS, UNJUDGED_TOKENS, Tallies
from proxy.telemetry.families import Labels, counter, histogram


def hook_metrics(policies: Mapping[str, Tallies]) -> Iterator[Metric]:
    """`policies`: the counts of each policy's hooks, by the policy's name."""
    has_names = len(policies) > 1
    names: Labels = ("policy", "hook") if has_names else ("hook",)
    each = [
        ((policy, hook) if has_names else (hook,), tally)
        for policy, tallies in policies.items()
        for hook, tally in tallies.items()
    ]
    verdicts = [((*labels, action), n) for labels, tally in each for action, n in tally.verdicts.items()]
    yield counter("hook_verdicts", "Verdicts, by hook and action.", (*names, "action"), verdicts)
    seconds = [(labels, tally.seconds) for labels, tally in each]
    yield counter("hook_seconds", "Wall time of the hooks' calls.", names, seconds)
    calls = [(labels, _histogram(CALL_SECONDS, tally.calls, tally.call_seconds)) for labels, tally in each]
    text = "Wall time of a hook's call. A call that fused guards share counts for each of them, whole."
    yield histogram("hook_call_seconds", text, names, calls)
    held = [(labels, _histogram(HELD_SECONDS, tally.held, tally.held_seconds)) for labels, tally in each]
    text = "How long a hook held text. Counted while somebody receives the decisions."
    yield histogram("hook_held_seconds", text, names, held)
    unjudged = [
        (labels, _histogram(UNJUDGED_TOKENS, tally.unjudged, tally.num_unjudged))
        for labels, tally in each
        if tally.unjudged
    ]
    text = "The most tokens of a stream that were out unjudged at a time. Only streams of hooks that judge."
    yield histogram("hook_unjudged_tokens", text, names, unjudged)


def _histogram(ends: Sequence[float], counts: Mapping[int, int], total: float) -> Histogram:
    made = Histogram(ends)
    for place, number in counts.items():
        made.counts[place] = number
    made.sum = total
    return made
