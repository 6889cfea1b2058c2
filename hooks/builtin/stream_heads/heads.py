"""Readings of a token classifier's heads: how bad a token is, and of which category.

Two forms are known. Qwen3Guard-Stream has a risk and a category, for tokens of a reply and for the token that
closes a prompt (`query_`). Any other model has one group, `labels`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from engine.protocol import EngineError

Logits = Mapping[str, Sequence[float]]
"""One token's logits by group, in the order of the group's labels."""


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
    """A model gave logits that are no numbers. The message has no text."""


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


class Heads(Protocol):
    def read(self, logits: Logits) -> Reading:
        """Raises `LogitsError`."""


def heads_of(labels: Mapping[str, Sequence[str]], options: HeadOptions) -> tuple[Heads, Heads | None]:
    """The heads for tokens of a reply, and those for the token that closes a prompt (None: there are none).
    Raises `ValueError` for labels that are not known, or for options of another kind of model."""
    if "risk_level" in labels:
        if options.labels is not None:
            raise ValueError("labels: this model has categories")
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
        self._levels = [_LEVELS[name.lower()] for name in labels[self._risk]]
        self._names = labels[self._category]
        categories = options.categories
        self._wanted = None if categories is None else frozenset(known(categories, self._names))
        self._threshold = options.threshold
        self._counting = {Level.UNSAFE, Level.CONTROVERSIAL} if options.strict else {Level.UNSAFE}

    def read(self, logits: Logits) -> Reading:
        probabilities = dict(zip(self._levels, softmax(logits[self._risk]), strict=True))
        if self._threshold is None:
            level = max(probabilities, key=probabilities.__getitem__)
            if level not in self._counting:
                return SAFE
        else:
            if sum(probabilities[one] for one in self._counting) < self._threshold:
                return SAFE
            level = max(self._counting, key=probabilities.__getitem__)
        categories = softmax(logits[self._category])
        category = self._names[categories.index(max(categories))]
        is_wanted = self._wanted is None or category in self._wanted
        return Reading(level, category) if is_wanted else SAFE


class LabelHeads:
    """A single head. Some of its labels are to be acted on."""

    def __init__(self, labels: Mapping[str, Sequence[str]], options: HeadOptions) -> None:
        """Raises `ValueError` without labels to act on, and for unknown ones."""
        entities = [_entity(name) for name in labels["labels"]]
        if options.labels is None:
            raise ValueError(f"labels are needed, some of {', '.join(dict.fromkeys(entities))}")
        counting = frozenset(known(options.labels, entities))
        self._entities = entities
        self._counting = [i for i, entity in enumerate(entities) if entity in counting]
        self._threshold = options.threshold

    def read(self, logits: Logits) -> Reading:
        probabilities = softmax(logits["labels"])
        best = max(self._counting, key=probabilities.__getitem__)
        entity = self._entities[best]
        if self._threshold is None:
            counts = probabilities[best] == max(probabilities)
        else:
            # An entity's tags, as `B-NAME` and `I-NAME`, count together.
            same = (p for p, one in zip(probabilities, self._entities, strict=True) if one == entity)
            counts = sum(same) >= self._threshold
        return Reading(Level.UNSAFE, entity) if counts else SAFE


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities, in the same order. Raises `LogitsError` unless all logits are finite numbers."""
    if not all(map(math.isfinite, logits)):
        raise LogitsError("The guard model gave logits that are no numbers.")
    highest = max(logits)
    powers = [math.exp(logit - highest) for logit in logits]
    total = sum(powers)
    return [power / total for power in powers]


def known(names: Sequence[str], labels: Iterable[str]) -> Sequence[str]:
    """The names. Raises `ValueError` if one is no label."""
    labels = dict.fromkeys(labels)
    if unknown := [name for name in names if name not in labels]:
        raise ValueError(f"{', '.join(unknown)} is not one of {', '.join(labels)}")
    return names


def _entity(label: str) -> str:
    """The label without its tag (BIO, BIOES, BILOU)."""
    tag, dash, entity = label.partition("-")
    return entity if dash and tag in ("B", "I", "E", "S", "L", "U") else label
