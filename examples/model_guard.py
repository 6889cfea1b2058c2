"""A guard that is a model; here a list of words stands for the model:
`weir serve --hook examples/model_guard.py:Unkind`."""

import re

from hooks import Chunk
from hooks.detect.coverage import Judged
from hooks.detect.detector import Match
from hooks.detect.model_guard import ModelGuard

UNKIND = re.compile(r"\b(?:fool|idiot|stupid)\b", re.IGNORECASE)


class Judge:
    """Judges one stream."""

    def __init__(self) -> None:
        self.text = ""
        self.num_judged = 0

    async def judge(self, text: str, is_final: bool) -> Judged:
        # A model would compute the new text alone, and keep its keys and values for the next call.
        self.text += text
        end = len(self.text) if is_final else self.text.rfind(" ") + 1  # the last word may go on
        found = [Match(*one.span(), "unkind") for one in UNKIND.finditer(self.text, self.num_judged, end)]
        self.num_judged = end
        return Judged(end, others=found)

    def close(self) -> None:
        """A model would free its keys and values here."""


class Unkind(ModelGuard):
    def open_judge(self, chunk: Chunk) -> Judge:
        return Judge()
