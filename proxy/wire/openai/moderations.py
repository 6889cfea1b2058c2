"""`POST /v1/moderations`: the verdicts of hooks on texts, in the shape of OpenAI's moderations."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from engine.protocol import GenerationRequest, RequestError, SamplingParams
from hooks.api.decision import NOTES, Decision
from proxy.settings.guard_api import Category
from proxy.wire.body import RequestBody
from proxy.wire.openai.answer import JSONObject

MODEL = "weir-guards"
"""The name of the server's hooks, as a model."""

_CATEGORIES: tuple[str, ...] = get_args(Category)
"""Its clients need all of them. No hook judges by them: the operator maps reasons to them."""


class TextPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)

    type: Literal["text"]
    text: str


class ImagePart(BaseModel):
    """Read only to be refused by its name."""

    model_config = ConfigDict(strict=True, defer_build=True)

    type: Literal["image_url"]


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]
_Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]
_Parts = Annotated[list[Part], Field(min_length=1, fail_fast=True)]


def _form(value: Any) -> str:
    """The form of an input. An error then names the place that is wrong in this form."""
    is_list = isinstance(value, list)
    return (
        "list[part]"
        if is_list and value and isinstance(value[0], dict)
        else "list[str]"
        if is_list
        else "str"
    )


class ModerationRequest(RequestBody):
    """Texts to judge. A text is judged as a prompt, and as an answer."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)

    input: Annotated[
        Annotated[str, Tag("str")]
        | Annotated[_Texts, Tag("list[str]")]
        | Annotated[_Parts, Tag("list[part]")],
        Discriminator(_form),
    ] = Field(description="A text, texts with a result each, or the parts of one text")
    model: str | None = Field(None, description=f"Only `{MODEL}`")
    hooks: list[str] = Field(
        default_factory=list,
        description="Hooks to run in addition to the server's own; the server must allow them",
    )
    user: str | None = None

    def inputs(self) -> list[tuple[str, ...]]:
        """The texts of each input; the input has one result. Raises `RequestError` for an unknown model and
        for an image."""
        if self.model not in (None, MODEL):
            reason = f"The model '{self.model}' is not served here: texts are judged by '{MODEL}'."
            raise RequestError(reason, param="model", code="model_not_found", status=404)
        if isinstance(self.input, str):
            return [(self.input,)]
        texts: list[str] = []
        for i, one in enumerate(self.input):
            if isinstance(one, ImagePart):
                raise RequestError("No hook here looks at images.", param=f"input.{i}.image_url")
            texts.append(one if isinstance(one, str) else one.text)
        return [(text,) for text in texts] if isinstance(self.input[0], str) else [tuple(texts)]

    def to_requests(
        self, request_id: str, texts: tuple[str, ...], *, caller: str
    ) -> tuple[GenerationRequest, GenerationRequest]:
        """The request whose prompts are `texts`, and the one whose outputs they are."""
        shared: dict[str, Any] = {
            "request_id": request_id,
            "model": MODEL,
            "endpoint": "moderations",
            "hooks": tuple(dict.fromkeys(self.hooks)),
            "caller": caller,
            "user": self.user,
        }
        as_prompt = GenerationRequest(**shared, prompts=texts, generates=False)
        as_answer = GenerationRequest(**shared, sampling=SamplingParams(n=len(texts)))
        return as_prompt, as_answer


def result(decisions: Sequence[Decision], categories: Mapping[str, str]) -> JSONObject:
    """The result for one input, which is flagged if a hook does not let it pass as it is (contract 8.13).
    `categories`: by patterns of reasons."""
    shown = [decision for decision in decisions if decision.action not in ("hold", "judged")]
    flagging = [one for one in shown if one.mode == "enforce" and one.action not in NOTES]
    found = {
        category
        for pattern, category in categories.items()
        for one in flagging
        if one.action != "error" and re.fullmatch(pattern, one.reason or "")
    }
    return {
        "flagged": bool(flagging),
        "categories": {name: name in found for name in _CATEGORIES},
        "category_scores": {name: float(name in found) for name in _CATEGORIES},
        "category_applied_input_types": {name: ["text"] if name in found else [] for name in _CATEGORIES},
        "decisions": [_decision(decision) for decision in shown],
    }


def _decision(decision: Decision) -> JSONObject:
    is_prompts = decision.channel == "prompt"
    # `terminate` withholds the whole rest of the text. `num_withheld` is only what the hook has seen of it.
    has_end = not is_prompts and decision.action != "terminate"
    return {
        "hook": decision.hook,
        "action": decision.action,
        # The reason of an error is the place in the hook's code that raised it. It goes to the log alone.
        "reason": None if decision.action == "error" else decision.reason,
        "mode": decision.mode,
        "channel": decision.channel,
        "part": decision.output_index,
        "start": None if is_prompts else decision.offset,
        "end": decision.offset + decision.num_withheld if has_end else None,
    }
