"""The checks of NeMo Guardrails' server: `POST /v1/checks`, `nemoguardrails/server/api.py`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hooks.builtin.remote_service.api import NAMELESS, Answer, Label, OneTextApi
from hooks.builtin.remote_service.changes import changes
from hooks.detect.detector import Match


class Check(Answer):
    status: Literal["passed", "blocked", "modified"]
    content: str
    rail: Label | None = None
    """The rail that blocked the text."""


@dataclass(frozen=True, kw_only=True)
class Nemo(OneTextApi[Check]):
    """Runs rails on a text: input rails on a prompt's, output rails on an answer's."""

    model: str
    config: str | None = None

    async def _ask_one(self, text: str, is_prompt: bool) -> Check:
        # The server refuses a named type of rails that it has none of. Otherwise it would let the text pass.
        guardrails = {"rail_types": ["input" if is_prompt else "output"]}
        if self.config is not None:
            guardrails["config_ids"] = [self.config]
        message = {"role": "user" if is_prompt else "assistant", "content": text}
        body = {"model": self.model, "messages": [message], "guardrails": guardrails}
        return Check.model_validate_json(await self.service.post(body))

    def _matches(self, text: str, result: Check) -> Iterator[Match]:
        if result.status == "blocked":
            yield Match(0, len(text), result.rail or NAMELESS)
        elif result.status == "modified":
            yield from (Match(*place, NAMELESS) for place in changes(text, result.content))
