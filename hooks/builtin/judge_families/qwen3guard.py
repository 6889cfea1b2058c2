"""Qwen3Guard-Gen, and the small generative guard that ships: lines `Safety:` and `Categories:`."""

from collections.abc import Sequence

from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.judge_families.family import AnswerError, AnswerLine, Family, Spellings

_LONGEST = 64
"""Characters of a category's name."""
PUBLISHED = frozenset(
    {
        "Violent",
        "Non-violent Illegal Acts",
        "Sexual Content or Sexual Acts",
        "PII",
        "Suicide & Self-Harm",
        "Unethical Acts",
        "Politically Sensitive Topics",
        "Copyright Violation",
        "Jailbreak",
    }
)
"""The categories of Qwen3Guard-Gen (arXiv 2510.14276)."""
SHIPPED = frozenset({"Card Number", "Credentials", "Contact Data", "Secret Project", "System Prompt"})
"""The categories of the guard that ships."""


class Qwen3Guard(Family):
    name = "qwen3guard"
    system = "if laid out"

    @classmethod
    def recognises(cls, layout: str, model: str) -> bool:
        is_named = "qwen3guard" in model and "stream" not in model
        return is_named or "<BEGIN SAFETY POLICY>" in layout or layout.endswith("<|im_start|>judge\n")

    def lines(self, turns: Sequence[Turn], criterion: str) -> tuple[AnswerLine, ...]:
        spellings: Spellings = {
            "safe": (" Safe",),
            "unsafe": (" Unsafe",),
            "controversial": (" Controversial",),
        }
        return (AnswerLine("Safety:", spellings),)

    def may_name(self, category: str, criteria: Sequence[str]) -> bool:
        return category in PUBLISHED | SHIPPED

    def categories_begin(self, verdict: str) -> str | None:
        return f"{verdict}\nCategories:"

    def categories(self, text: str) -> tuple[str, ...]:
        # Only this line: a later one may quote the judged text, and a category's name in it.
        names = [name.strip() for name in text.split("\n")[0].split(",")]
        if not all(0 < len(name) <= _LONGEST for name in names):
            raise AnswerError("the answer has no line of categories")
        return tuple(name for name in names if name != "None")
