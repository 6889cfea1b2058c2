"""The metrics of engines and of the upstreams behind them.

Where there are several models, each metric has the label `model_name`.
"""

from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client.core import Metric

from engine.protocol import EngineStats
from engine.protocol.stats import ReplicaState
from proxy.telemetry.families import Labels, counter, gauge, histogram

_Engines = list[tuple[Labels, EngineStats]]


def engine_metrics(models: Mapping[str, EngineStats]) -> Iterator[Metric]:
    """`models`: by the model's name."""
    has_names = len(models) > 1
    names: Labels = ("model_name",) if has_names else ()
    engines: _Engines = [((name,) if has_names else (), stats) for name, stats in models.items()]
    yield from _totals(names, engines)
    yield from _steps(names, engines)
    yield from _upstreams(names, engines)


_GAUGES = (
    ("num_requests_running", "Requests that the engine works on.", "num_running"),
    ("num_requests_waiting", "Requests that wait for the engine.", "num_waiting"),
    ("kv_blocks_used", "Blocks of the key-value cache in use.", "kv_blocks_used"),
    ("kv_blocks", "Blocks of the key-value cache.", "kv_blocks"),
    ("kv_cache_usage_perc", "Share of the key-value cache in use; 1 is all.", "kv_cache_usage"),
)
"""Name and help, and the attribute of `EngineStats`."""

_COUNTERS = (
    ("prompt_tokens", "Prompt tokens accepted.", "prompt_tokens_total"),
    ("generation_tokens", "Tokens generated.", "generation_tokens_total"),
    ("requests_aborted", "Requests whose work was cancelled.", "aborted_total"),
    ("computed_tokens", "Tokens that the model computed.", "computed_tokens_total"),
    ("engine_steps", "Steps of the engine.", "steps_total"),
    ("num_preemptions", "Times that an output gave up its blocks to another.", "preemptions_total"),
    ("prefix_cache_queries", "Prompt tokens looked up in the cache.", "prefix_cache_queries_total"),
    (
        "prefix_cache_hits",
        "Prompt tokens found in the cache, which are not computed.",
        "prefix_cache_hits_total",
    ),
    ("spec_decode_num_drafts", "Guesses at the next tokens.", "spec_decode_drafts_total"),
    ("spec_decode_num_draft_tokens", "Tokens guessed.", "spec_decode_draft_tokens_total"),
    (
        "spec_decode_num_accepted_tokens",
        "Guessed tokens that were right.",
        "spec_decode_accepted_tokens_total",
    ),
)

_HISTOGRAMS = {
    "iteration_tokens_total": "Tokens computed in a step.",
    "iteration_sequences": "Outputs in a step.",
    "request_queue_time_seconds": "From an output's arrival at the engine to its first step.",
    "request_prefill_time_seconds": "From an output's first step to its first token.",
    "request_decode_time_seconds": "From an output's first token to its last.",
}


def _totals(names: Labels, engines: _Engines) -> Iterator[Metric]:
    for name, text, attribute in _GAUGES:
        yield gauge(name, text, names, [(labels, getattr(stats, attribute)) for labels, stats in engines])
    for name, text, attribute in _COUNTERS:
        yield counter(name, text, names, [(labels, getattr(stats, attribute)) for labels, stats in engines])


def _steps(names: Labels, engines: _Engines) -> Iterator[Metric]:
    phases = [
        ((*labels, phase), times) for labels, stats in engines for phase, times in stats.step_seconds.items()
    ]
    yield histogram("engine_step_seconds", "Wall time of a step, by phase.", (*names, "phase"), phases)
    for name, text in _HISTOGRAMS.items():
        found = [(labels, stats.histograms[name]) for labels, stats in engines if name in stats.histograms]
        if found:
            yield histogram(name, text, names, found)


def _upstreams(names: Labels, engines: _Engines) -> Iterator[Metric]:
    """Metrics of pools. An upstream's label is its name, or its host and port."""
    label = (*names, "upstream")
    each = [((*labels, name), one) for labels, stats in engines for name, one in stats.replicas.items()]
    outstanding = [(labels, one.outstanding) for labels, one in each]
    yield gauge("upstream_outstanding", "Requests that run at an upstream.", label, outstanding)
    states = [
        ((*labels, state), state == one.state) for labels, one in each for state in get_args(ReplicaState)
    ]
    text = "1 for the state of an upstream's circuit breaker, or draining; 0 for other states."
    yield gauge("upstream_state", text, (*label, "state"), states)
    failed = [(labels, one.last_request_failed) for labels, one in each]
    text = "1 if the latest request that an upstream answered or failed was a failure; else 0."
    yield gauge("upstream_last_request_failed", text, label, failed)
    text = "Requests to an upstream, by end: as weir_requests, and full (it has too many)."
    ends = [((*labels, outcome), n) for labels, one in each for outcome, n in one.outcomes.items()]
    yield counter("upstream_requests", text, (*label, "outcome"), ends)
    text = "Requests that went to another upstream, because this one failed before the first token."
    yield counter("upstream_retries", text, label, [(labels, one.retries_total) for labels, one in each])
    seconds = [(labels, one.first_token_seconds) for labels, one in each]
    text = "From the start of a request to an upstream to its first token."
    yield histogram("upstream_first_token_seconds", text, label, seconds)
