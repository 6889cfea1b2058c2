"""Granite Guardian: one criterion in a prompt, after the conversation.

Versions 3.0 to 3.2 answer `Yes` or `No`. Version 3.3 answers `<score> yes </score>`.
"""

from collections.abc import Sequence
from typing import Self

from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.judge_families.family import YES_NO, AnswerLine, Chat, Family, GuardModel, messages_of

CRITERIA = (
    *("harm", "social_bias", "jailbreak", "profanity", "sexual_content", "unethical_behavior", "violence"),
    *("evasiveness", "harm_engagement"),
)
"""The criteria that need nothing but a conversation."""


class GraniteGuardian(Family):
    """`scores`: whether the model answers as version 3.3 does."""

    name = "granite_guardian"
    layout_signs = ("<start_of_risk_definition>", "judge_protocol", "### Scoring Schema")
    name_signs = ("granite-guardian",)
    criteria = CRITERIA
    first_covers_most = True

    def __init__(self, *, scores: bool) -> None:
        self._scores = scores

    @classmethod
    def of(cls, model: GuardModel) -> Self:
        return cls(scores="### Scoring Schema" in model.layout or "3.3" in model.name)

    def prompt(self, turns: Sequence[Turn], criterion: str) -> Chat | str:
        if self._scores:
            return Chat(messages_of(turns), {"guardian_config": {"criteria_id": criterion}, "think": False})
        return Chat(messages_of(turns), {"guardian_config": {"risk_name": criterion}})

    def lines(self, turns: Sequence[Turn], criterion: str) -> tuple[AnswerLine, ...]:
        if self._scores:
            return (AnswerLine("<score>", {"unsafe": (" yes", " Yes"), "safe": (" no", " No")}),)
        return (AnswerLine("", YES_NO),)
