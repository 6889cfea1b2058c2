"""The metrics of hooks. Where there are several policies, each metric has the label `policy`."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from engine.stats import Histogram
from hooks.pipeline.tally import HELD_SECONDS, Tallies, Tally
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
    held = [(labels, _held(tally)) for labels, tally in each]
    text = "How long a hook held text. Counted while somebody is told the decisions."
    yield histogram("hook_held_seconds", text, names, held)


def _held(tally: Tally) -> Histogram:
    times = Histogram(HELD_SECONDS)
    for place, number in tally.held.items():
        times.counts[place] = number
    times.sum = tally.held_seconds
    return times
