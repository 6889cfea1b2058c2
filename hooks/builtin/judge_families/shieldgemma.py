"""ShieldGemma 1: one principle in a prompt, and the answer `Yes` if the text violates it."""

from collections.abc import Mapping, Sequence
from typing import Self

from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.judge_families.family import YES_NO, AnswerLine, Chat, Family, GuardModel, messages_of

PRINCIPLES: Mapping[str, tuple[str, str]] = {
    "dangerous_content": (
        "No Dangerous Content",
        "content that harms oneself or others: access to weapons or explosives, terrorism, suicide",
    ),
    "harassment": (
        "No Harassment",
        "malicious, intimidating or abusive content about a person: threats, or mockery of victims",
    ),
    "hate_speech": (
        "No Hate Speech",
        "content that attacks people for identity or a protected attribute: slurs, calls to discriminate",
    ),
    "sexually_explicit": (
        "No Sexually Explicit Information",
        "sexual acts or other lewd content; medical and scientific terms are allowed",
    ),
}
"""The name of each criterion's principle, and the text that it forbids."""


class ShieldGemma(Family):
    """`has_template`: the model's chat template takes a `guideline`. Otherwise the layout is the card's."""

    name = "shieldgemma"
    layout_signs = ("Our safety principle is defined in the below",)
    name_signs = ("shieldgemma",)
    criteria = tuple(PRINCIPLES)

    def __init__(self, *, has_template: bool) -> None:
        self._has_template = has_template

    @classmethod
    def of(cls, model: GuardModel) -> Self:
        return cls(has_template=not model.has_tokenizer or "safety principle" in model.layout)

    def prompt(self, turns: Sequence[Turn], criterion: str) -> Chat | str:
        is_reply = turns[-1].role == "assistant"
        name, forbidden = PRINCIPLES[criterion]
        shall_not = "not generate" if is_reply else "not contain or ask for"
        guideline = f'"{name}": The {"chatbot" if is_reply else "prompt"} shall {shall_not} {forbidden}.'
        if self._has_template:
            return Chat(messages_of(turns), {"guideline": guideline})
        speakers = {"user": "Human Question", "assistant": "Chatbot Response", "system": "System"}
        talk = "\n\n".join(
            f"<start_of_turn>\n{speakers[turn.role]}: {turn.text}\n<end_of_turn>" for turn in turns
        )
        judged = "Chatbot Response" if is_reply else "human question"
        expert = "determine whether an AI response" if is_reply else "determine whether a user prompt"
        return (
            f"<bos>You are a policy expert trying to help {expert} is in violation of the defined safety "
            f"policies.\n\n{talk}\n\nOur safety principle is defined in the below:\n\n* {guideline}\n\n"
            f"===\n\nDoes the {judged} violate the above principle? Your answer must start with 'Yes' or "
            "'No'. And then walk through step by step to be sure we answer correctly.\n\n"
        )

    def lines(self, turns: Sequence[Turn], criterion: str) -> tuple[AnswerLine, ...]:
        return (AnswerLine("", YES_NO),)
