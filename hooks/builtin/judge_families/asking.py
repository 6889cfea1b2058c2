"""Questions to a generative guard model about one conversation, which grows at its end."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.protocol import Engine, EngineError
from hooks.builtin.judge_families.family import AnswerLine, Family, Safety

_ROUNDING = 0.01
"""A logprob is at most 0, except the rounding of the engine's numbers."""


class UnclearError(EngineError):
    """A guard model's answer shows no verdict. The message has no part of the answer."""


class Opinion(NamedTuple):
    """A model's answer to one question."""

    criterion: str
    """Empty: the question covers all that the family knows."""
    probabilities: Mapping[Safety, float]
    """Together 1."""
    categories: tuple[str, ...] = ()


MayMatter = Callable[[Opinion], bool]
"""Whether an opinion can lead to an action, so that its categories are worth asking for."""


class Conversation(Protocol):
    """One conversation, whose last turn grows."""

    async def ask(self, text: str, may_matter: MayMatter) -> list[Opinion]:
        """Append `text` to the last turn, and ask about it. Raises `UnclearError`, `AnswerError`, the errors
        of `Engine.generate`, and `ValueError` for a text that reads as special tokens."""


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A model, and the questions to ask it."""

    engine: Engine
    model: str
    family: Family
    criteria: Sequence[str]
    """The model is asked about them one by one. One empty name: the family has none."""
    least_mass: float
    """The least probability that all verdicts together have in an answer."""
    salt: str
    """Unknown outside of this process: cached prompts are shared within one request only."""


def probability(logprob: float) -> float:
    """Raises `UnclearError` for a number that cannot be a logprob, such as 1000."""
    if not logprob <= _ROUNDING:  # a comparison with what is not a number is false
        raise UnclearError("The guard model returned an impossible probability.")
    return math.exp(logprob)


def probabilities(line: AnswerLine, masses: Mapping[str, float], least_mass: float) -> dict[Safety, float]:
    """The verdicts' probabilities. `masses`: by spelling. Raises `UnclearError` if together they have less
    than `least_mass`, or are not numbers."""
    own = {verdict: sum(masses[one] for one in words) for verdict, words in line.spellings.items()}
    total = sum(own.values())
    if not least_mass <= total < 2 or total <= 0:  # a comparison with what is not a number is false
        raise UnclearError("The guard model did not answer with a verdict.")
    return {verdict: mass / total for verdict, mass in own.items()}
