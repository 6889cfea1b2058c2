"""Orders that somebody hides in a text that a model reads: `--hook injection`.

A small linear model judges each text of a prompt: results of tools, documents and, if asked for, the user's
own words. It reads windows of words, so an order in a long text is found. Answers pass as they are. The
model, its data and its figures: docs/models/injection.md.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from hooks import (
    Chunk,
    GenerationRequest,
    PromptText,
    Refusal,
    Verdict,
    checked,
    emit,
    prompt_texts,
    refuse,
    with_prompt_texts,
)
from hooks.api.extras import from_extra
from hooks.builtin.wrap import Wrap
from hooks.detect.argument_types import Template, Text

with from_extra("guards", "numpy"):
    from hooks.builtin.injection_model.model import FALSE_RATES, InjectionModel, Kind, Place

ENTITY = "injection"
_CACHED = 4096
"""Most texts whose places are kept: a conversation comes again with each of its turns."""


class Injection:
    """Finds orders to the model in texts of prompts."""

    max_hold = 0
    reads_text = False

    @checked
    def __init__(
        self,
        *,
        action: Literal["taint", "wrap", "redact", "refuse"] = "taint",
        of: Annotated[Sequence[Literal["user", "tool", "document"]], Field(min_length=1)] = (
            "tool",
            "document",
        ),
        false_rate: float = 0.01,
        template: Template = "[{entity}]",
        text: Text | None = None,
    ) -> None:
        """`action`: `taint` marks the request, so that guards such as `tools` allow less in answers to it.
        `wrap` also marks all results of tools and documents as data, as the guard `wrap` does. `redact` puts
        `template` in the place of the words in which an order is. `refuse` refuses the request, and answers
        with `text` if there is one.

        `of`: the texts to read: results of a `tool`, each `document`, and what the `user` says.
        `false_rate`: the share of harmless texts that may be flagged: 0.005, 0.01 or 0.05. It holds for texts
        like those that the model's card names.

        Raises `ValueError` for an invalid or useless argument.
        """
        if false_rate not in FALSE_RATES:
            raise ValueError(f"false_rate: there are thresholds for {FALSE_RATES}, and not for {false_rate}")
        if text is not None and action != "refuse":
            raise ValueError(f"text: it is for refuse, and the action is {action}")
        self._action = action
        self._of = frozenset(of)
        self._false_rate = false_rate
        self._replacement = template.format(entity=ENTITY)
        self._text = text
        self._wrap = Wrap() if action == "wrap" else None
        self._model = InjectionModel.load()
        self._known: OrderedDict[bytes, tuple[Place, ...]] = OrderedDict()

    def on_request(self, request: GenerationRequest) -> GenerationRequest | Refusal:
        if self._action == "redact":
            return with_prompt_texts(request, self._redacted)
        found = next((text for text in prompt_texts(request) if self._places(text)), None)
        if found is None:
            return request
        if self._action == "refuse":
            return refuse(ENTITY, self._text, place=found.place)
        tainted = replace(request, taint=request.taint or ENTITY)
        return tainted if self._wrap is None else self._wrap.on_request(tainted)

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    def _redacted(self, prompt: PromptText) -> str:
        text, rest = prompt.text, 0
        pieces: list[str] = []
        for start, end in self._places(prompt):
            pieces += [text[rest:start], self._replacement]
            rest = end
        return "".join([*pieces, text[rest:]])

    def _places(self, prompt: PromptText) -> tuple[Place, ...]:
        """The places of orders in a text of the prompt."""
        if prompt.is_json or not (prompt.source in self._of or not self._of.isdisjoint(prompt.others)):
            return ()
        kind: Kind = "prompt" if prompt.source == "user" else "document"
        key = hashlib.blake2b(f"{kind}{prompt.text}".encode(errors="surrogatepass"), digest_size=16).digest()
        places = self._known.pop(key, None)
        if places is None:
            places = self._model.places(prompt.text, kind, self._false_rate)
        self._known[key] = places
        if len(self._known) > _CACHED:
            self._known.popitem(last=False)
        return places
