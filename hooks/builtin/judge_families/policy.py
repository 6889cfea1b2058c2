"""A policy in words, for any chat model: the model answers with one of two words."""

from collections.abc import Sequence
from typing import Self

from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.judge_families.family import AnswerLine, Chat, Family, GuardModel, Spellings

_SPEAKERS = {"user": "User", "assistant": "Assistant", "system": "System"}


def transcript(turns: Sequence[Turn]) -> str:
    return "\n\n".join(f"{_SPEAKERS[turn.role]}: {turn.text}" for turn in turns)


class Policy(Family):
    """`answers`: the word for a text that the policy allows, and the word for one that it does not.
    `has_system`: whether the chat template knows system messages; otherwise the policy comes first in the
    user's."""

    name = "policy"
    reads_policy = True
    system = "always"

    def __init__(self, policy: str, answers: Sequence[str], *, has_system: bool) -> None:
        self._answers = answers
        self._has_system = has_system
        safe, unsafe = answers
        self._task = (
            f"{policy.strip()}\n\nYou are given a conversation. Judge its last message by the policy above. "
            f"Answer with one word: {safe} if the policy allows the message, {unsafe} if it does not."
        )

    @classmethod
    def of(cls, model: GuardModel) -> Self:
        return cls(model.policy, model.answers, has_system=model.has_system)

    def prompt(self, turns: Sequence[Turn], criterion: str) -> Chat | str:
        judged = (
            f"<conversation>\n{transcript(turns)}\n</conversation>\n\nOne word: {' or '.join(self._answers)}?"
        )
        if self._has_system:
            messages = [{"role": "system", "content": self._task}, {"role": "user", "content": judged}]
        else:
            messages = [{"role": "user", "content": f"{self._task}\n\n{judged}"}]
        return Chat(messages, {"enable_thinking": False})

    def lines(self, turns: Sequence[Turn], criterion: str) -> tuple[AnswerLine, ...]:
        safe, unsafe = ((word, word.capitalize()) for word in self._answers)
        spellings: Spellings = {"safe": safe, "unsafe": unsafe}
        return (AnswerLine("", spellings),)
