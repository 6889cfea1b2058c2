"""The models and the counts of several engines together."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from engine.protocol import EngineStats, ModelInfo
from engine.protocol.stats import Histogram, ReplicaStats


def info_of(infos: Sequence[ModelInfo]) -> ModelInfo:
    """The models of all engines. A length that a model's engines give differently is the smallest; of several
    models, the longest counts."""
    if len(infos) == 1:
        return infos[0]
    names = tuple(dict.fromkeys(name for info in infos for name in info.names))
    lengths = [_smallest([info for info in infos if name in info.names or not info.names]) for name in names]
    sizes = {info.vocab_size for info in infos}
    bytes_ = [info.max_prompt_bytes for info in infos if info.max_prompt_bytes is not None]
    return ModelInfo(
        max_model_len=max((n for n in lengths if n is not None), default=None) if names else _smallest(infos),
        vocab_size=sizes.pop() if len(sizes) == 1 else None,
        names=names,
        parses_tool_calls=all(info.parses_tool_calls for info in infos),
        can_rewind=all(info.can_rewind for info in infos),
        max_prompt_bytes=max(bytes_) if len(bytes_) == len(infos) else None,
    )


def _smallest(infos: Sequence[ModelInfo]) -> int | None:
    return min((info.max_model_len for info in infos if info.max_model_len is not None), default=None)


def stats_of(stats: Sequence[EngineStats], replicas: Mapping[str, ReplicaStats]) -> EngineStats:
    """The sums."""
    if len(stats) == 1:
        return replace(stats[0], replicas=replicas)
    numbers = {
        field.name: sum(getattr(one, field.name) for one in stats)
        for field in fields(EngineStats)
        if isinstance(getattr(stats[0], field.name), int)
    }
    return replace(
        EngineStats(),
        **numbers,
        step_seconds=_sums([one.step_seconds for one in stats]),
        histograms=_sums([one.histograms for one in stats]),
        replicas=replicas,
    )


def _sums(groups: Sequence[Mapping[str, Histogram]]) -> dict[str, Histogram]:
    names = dict.fromkeys(name for group in groups for name in group)
    return {name: _sum([group[name] for group in groups if name in group]) for name in names}


def _sum(histograms: Sequence[Histogram]) -> Histogram:
    total = Histogram(histograms[0].bounds)
    total.counts = [sum(counts) for counts in zip(*(h.counts for h in histograms), strict=True)]
    total.sum = sum(histogram.sum for histogram in histograms)
    return total
