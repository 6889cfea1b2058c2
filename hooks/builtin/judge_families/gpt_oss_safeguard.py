"""gpt-oss-safeguard: a policy in the system message, reasoning, and a verdict in the policy's own form."""

import json
import re
from collections.abc import Sequence
from typing import Any, Self

from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.judge_families.family import Answer, AnswerError, AnswerLine, Chat, Family, GuardModel
from hooks.builtin.judge_families.policy import transcript

_FINAL = "<|channel|>final<|message|>"
_SPECIAL = re.compile(r"<\|[a-z_]+\|>.*", re.DOTALL)
_LONGEST = 64


class GptOssSafeguard(Family):
    """The verdict is `1` or `0`, one of the two `answers`, or an object: `{"violation": 1, "policy_category":
    "H2.f"}`. The model reasons before it, which takes seconds: it is for the second stage of a cascade."""

    name = "gpt_oss_safeguard"
    name_signs = ("gpt-oss-safeguard",)
    reads_policy = True
    system = "always"
    reasons = True
    max_answer_tokens = 2048

    def __init__(self, policy: str, answers: Sequence[str]) -> None:
        self._policy = policy
        safe, unsafe = (answer.lower() for answer in answers)
        self._verdicts = {"0": False, "1": True, safe: False, unsafe: True}

    @classmethod
    def of(cls, model: GuardModel) -> Self:
        return cls(model.policy, model.answers)

    def prompt(self, turns: Sequence[Turn], criterion: str) -> Chat | str:
        asked = {"role": "user", "content": transcript(turns)}
        messages = [{"role": "system", "content": self._policy}, asked]
        return Chat(messages, {"reasoning_effort": "low"})

    def lines(self, turns: Sequence[Turn], criterion: str) -> tuple[AnswerLine, ...]:
        return ()

    def read(self, answer: str) -> Answer:
        _, found, final = answer.rpartition(_FINAL)
        text = _SPECIAL.sub("", final if found else answer).strip()
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        category: tuple[str, ...] = ()
        if isinstance(value, dict):
            category = _category(value.get("policy_category"))
            value = value.get("violation")
        verdict = self._verdicts.get(str(int(value)) if isinstance(value, bool) else str(value).lower())
        if verdict is None:
            raise AnswerError(
                "the answer is neither 0, 1, one of the answers, nor an object with a violation"
            )
        return Answer("unsafe", category) if verdict else Answer("safe")


def _category(name: Any) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) and 0 < len(name) <= _LONGEST else ()
