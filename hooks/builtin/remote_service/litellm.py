"""LiteLLM's Generic Guardrail API: https://docs.litellm.ai/docs/adding_provider/generic_guardrail_api."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hooks.builtin.remote_service.api import NAMELESS, Answer, OneTextApi
from hooks.builtin.remote_service.changes import changes
from hooks.builtin.remote_service.service import DetectorError
from hooks.detect.detector import Match

_LONGEST_NAME = 100


class Judgement(Answer):
    action: Literal["NONE", "BLOCKED", "GUARDRAIL_INTERVENED"]
    blocked_reason: str | None = None
    texts: list[str] | None = None
    """The texts that go on. None, empty: those that were sent."""


@dataclass(frozen=True, kw_only=True)
class LiteLlm(OneTextApi[Judgement]):
    """Blocks a text, or changes it. The requests have no call id: each text is whole."""

    model: str | None = None
    detector_params: dict[str, Any] = field(default_factory=dict)

    async def _ask_one(self, text: str, is_prompt: bool) -> Judgement:
        body = {
            "input_type": "request" if is_prompt else "response",
            "texts": [text],
            "model": self.model,
            "request_data": {},
            "additional_provider_specific_params": self.detector_params,
        }
        return Judgement.model_validate_json(await self.service.post(body))

    def _matches(self, text: str, result: Judgement) -> Iterator[Match]:
        if result.action == "BLOCKED":
            yield Match(0, len(text), _name(result.blocked_reason, text))
            return
        texts = result.texts or []
        if len(texts) > 1 or (result.action == "GUARDRAIL_INTERVENED" and not texts):
            raise DetectorError("the service answered for more or fewer texts than it was asked about")
        if texts and (result.action == "GUARDRAIL_INTERVENED" or texts != [text]):
            yield from (Match(*place, NAMELESS) for place in changes(text, texts[0]))


def _name(reason: str | None, text: str) -> str:
    """The reason if it is a name. A sentence is none: it may repeat the text, and a client may receive it."""
    is_name = reason and len(reason) <= _LONGEST_NAME and len(reason.split()) == 1 and reason not in text
    return reason if reason and is_name else NAMELESS
