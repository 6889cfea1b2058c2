"""Readings of a token classifier's heads: how bad each token is, and of which category.

Two forms are known. Qwen3Guard-Stream has a risk and a category, for tokens of a reply and for the token that
closes a prompt (`query_`). Any other model has one group, `labels`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import nan
from typing import NamedTuple, Protocol

from engine.protocol import EngineError
from engine.protocol.guard_models import Logits
from hooks.api.extras import from_extra

with from_extra("engine", "numpy"):
    import numpy as np
    import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


class Level(IntEnum):
    SAFE = 0
    CONTROVERSIAL = 1
    UNSAFE = 2


class Reading(NamedTuple):
    """The heads' reading of one token."""

    level: Level
    """`SAFE` if the options do not count it."""
    category: str


SAFE = Reading(Level.SAFE, "")
_LEVELS = {"safe": Level.SAFE, "controversial": Level.CONTROVERSIAL, "unsafe": Level.UNSAFE}


class LogitsError(EngineError):
    """A model gave logits that are not finite numbers. The message has no text."""


@dataclass(frozen=True, slots=True)
class HeadOptions:
    """The levels that count as not safe."""

    threshold: float | None = None
    """The least probability that counts, of the levels that count or of a label. None: the most likely level
    or label decides."""
    strict: bool = False
    """Whether `Controversial` counts."""
    categories: Sequence[str] | None = None
    """The categories that count. None: all."""
    labels: Sequence[str] | None = None
    """The labels of a single head that count, without `B-` and the like."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """Other thresholds, by category or label."""

    def limits(self, names: Sequence[str]) -> Floats:
        """The threshold of each category or label. NaN: the most likely level or label decides."""
        threshold = nan if self.threshold is None else self.threshold
        return np.array([self.thresholds.get(name, threshold) for name in names])


class Heads(Protocol):
    def read(self, logits: Logits) -> list[Reading]:
        """The reading of each token. Raises `LogitsError`."""


def heads_of(labels: Mapping[str, Sequence[str]], options: HeadOptions) -> tuple[Heads, Heads | None]:
    """The heads for tokens of a reply, and those for the token that closes a prompt (None: the model has no
    such heads). Raises `ValueError` for unknown labels, or for options of another kind of model."""
    if "risk_level" in labels:
        if options.labels is not None:
            raise ValueError("labels: this model has categories")
        categories = [*labels["category"], *labels.get("query_category", ())]
        known([*options.thresholds], categories if options.categories is None else options.categories)
        query = RiskHeads(labels, "query_", options) if "query_risk_level" in labels else None
        return RiskHeads(labels, "", options), query
    if options.strict or options.categories is not None:
        raise ValueError("strict and categories: this model has labels")
    return LabelHeads(labels, options), None


class RiskHeads:
    """Heads of Qwen3Guard-Stream: one group of risk levels, and one of categories."""

    def __init__(self, labels: Mapping[str, Sequence[str]], prefix: str, options: HeadOptions) -> None:
        """`prefix`: of the groups' names, `query_` or nothing. Raises `ValueError` for unknown levels and
        categories."""
        self._risk, self._category = f"{prefix}risk_level", f"{prefix}category"
        unknown = sorted(set(map(str.lower, labels[self._risk])) ^ _LEVELS.keys())
        if unknown:
            raise ValueError(f"the levels of {self._risk} are Safe, Unsafe and Controversial, not {unknown}")
        levels = [_LEVELS[name.lower()] for name in labels[self._risk]]
        counting = {Level.UNSAFE, Level.CONTROVERSIAL} if options.strict else {Level.UNSAFE}
        self._counting = [i for i, level in enumerate(levels) if level in counting]
        self._levels = [levels[i] for i in self._counting]
        names = self._names = labels[self._category]
        wanted = names if options.categories is None else known(options.categories, names)
        self._is_wanted = np.isin(names, wanted)
        self._limits = options.limits(names)

    def read(self, logits: Logits) -> list[Reading]:
        probabilities = softmax(logits[self._risk])
        categories = _finite(logits[self._category]).argmax(axis=1)
        counting = probabilities[:, self._counting]
        likeliest = counting.max(axis=1) == probabilities.max(axis=1)
        counts = _reach(self._limits[categories], likeliest, counting.sum(axis=1))
        counts &= self._is_wanted[categories]
        if not counts.any():
            return [SAFE] * len(counts)
        found = zip(counts.tolist(), counting.argmax(axis=1).tolist(), categories.tolist(), strict=True)
        return [Reading(self._levels[i], self._names[j]) if is_found else SAFE for is_found, i, j in found]


class LabelHeads:
    """A single head. Some of its labels are to be acted on."""

    def __init__(self, labels: Mapping[str, Sequence[str]], options: HeadOptions) -> None:
        """Raises `ValueError` without labels to act on, and for unknown ones."""
        entities = [_entity(name) for name in labels["labels"]]
        if options.labels is None:
            raise ValueError(f"labels are needed, some of {', '.join(dict.fromkeys(entities))}")
        counting = list(dict.fromkeys(known(options.labels, entities)))
        known([*options.thresholds], counting)
        self._readings = [Reading(Level.UNSAFE, entity) for entity in counting]
        self._limits = options.limits(counting)
        # `[labels, entities]`. An entity's tags, as `B-NAME` and `I-NAME`, count together.
        self._is_tag = np.array([[entity == one for one in counting] for entity in entities], float)

    def read(self, logits: Logits) -> list[Reading]:
        probabilities = softmax(logits["labels"])
        together = probabilities @ self._is_tag
        likeliest = (probabilities == probabilities.max(axis=1, keepdims=True)) @ self._is_tag > 0
        counts = _reach(self._limits, likeliest, together)
        if not counts.any():
            return [SAFE] * len(counts)
        best = np.where(counts, together, -1.0).argmax(axis=1).tolist()
        return [self._readings[i] if any(row) else SAFE for row, i in zip(counts.tolist(), best, strict=True)]


def _reach(limits: Floats, likeliest: Booleans, together: Floats) -> Booleans:
    """Whether each level or label counts: its probability `together` reaches the limit; or, without a limit,
    the `likeliest` of all is among them."""
    return np.where(np.isnan(limits), likeliest, together >= limits)


def softmax(logits: npt.NDArray[np.float32]) -> Floats:
    """Probabilities, in the same order. `[tokens, labels]`, both. Raises `LogitsError` unless all logits are
    finite numbers."""
    powers = np.exp(_finite(logits) - logits.max(axis=1, keepdims=True))
    total: Floats = powers / powers.sum(axis=1, keepdims=True)
    return total


def _finite(logits: npt.NDArray[np.float32]) -> Floats:
    if not np.isfinite(logits).all():
        raise LogitsError("The guard model gave logits that are not finite numbers.")
    return logits.astype(np.float64)


def known(names: Sequence[str], labels: Iterable[str]) -> Sequence[str]:
    """The names. Raises `ValueError` if one is not a label."""
    labels = dict.fromkeys(labels)
    if unknown := [name for name in names if name not in labels]:
        raise ValueError(f"{', '.join(unknown)} is not one of {', '.join(labels)}")
    return names


def _entity(label: str) -> str:
    """The label without its tag (BIO, BIOES, BILOU)."""
    tag, dash, entity = label.partition("-")
    return entity if dash and tag in ("B", "I", "E", "S", "L", "U") else label
