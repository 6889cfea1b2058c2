"""Llama Guard 3 and 4: `safe`, or `unsafe` and a line of category codes."""

import re
from collections.abc import Sequence

from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.judge_families.family import SAFE_UNSAFE, AnswerError, AnswerLine, Family

_CODES = re.compile(r"S\d{1,2}(\s*,\s*S\d{1,2})*")


class LlamaGuard(Family):
    """The template chooses the judged role by the parity of the turns. It ends right after the header of the
    answer, and the model may write two line ends before its verdict. So these are a part of the question."""

    name = "llama_guard"
    layout_signs = ("<BEGIN UNSAFE CONTENT CATEGORIES>",)
    name_signs = ("llama-guard",)

    def lines(self, turns: Sequence[Turn], criterion: str) -> tuple[AnswerLine, ...]:
        return (AnswerLine("\n\n", SAFE_UNSAFE),)

    def categories_begin(self, verdict: str) -> str | None:
        return f"{verdict}\n"

    def categories(self, text: str) -> tuple[str, ...]:
        line = text.strip().split("\n")[0].strip()
        if not _CODES.fullmatch(line):
            raise AnswerError("the answer has no line of category codes")
        return tuple(code.strip() for code in line.split(","))

    def may_name(self, category: str, criteria: Sequence[str]) -> bool:
        return "," not in category and _CODES.fullmatch(category) is not None
