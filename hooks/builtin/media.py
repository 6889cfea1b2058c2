"""Refuses images, sounds and files in prompts: `--hook media`, with `args: {allow: [image]}`.

No guard reads what is in them. A deployment whose guards must see every word allows none of them.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from hooks import (
    Chunk,
    GenerationRequest,
    PromptMedium,
    Refusal,
    Verdict,
    checked,
    emit,
    prompt_media,
    refuse,
)
from hooks.detect.argument_types import Text


class Media:
    """Lets a prompt pass if all of its media are allowed. Answers are not looked at."""

    thread_safe = True
    copyable = True
    reads_media = True

    @checked
    def __init__(
        self,
        *,
        allow: Sequence[Literal["image", "audio", "video", "file"]] = (),
        max_bytes: Annotated[int, Field(ge=0)] | None = None,
        addresses: bool = False,
        text: Text | None = None,
    ) -> None:
        """`allow`: the kinds that pass: `image`, `audio`, `video` and `file`. `max_bytes`: most bytes of one.
        `addresses`: let bytes pass that are elsewhere, which an upstream would fetch. `text`: the answer to a
        refused prompt; without it, the request is an error."""
        self._allowed = frozenset(allow)
        self._max_bytes = max_bytes
        self._takes_addresses = addresses
        self._text = text

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.text_diff)

    def on_request(self, request: GenerationRequest) -> GenerationRequest | Refusal:
        for medium in prompt_media(request):
            if reason := self._reason(medium):
                return refuse(reason, self._text)
        return request

    def _reason(self, medium: PromptMedium) -> str | None:
        """The reason to refuse a prompt with this medium, if any."""
        if medium.kind not in self._allowed:
            return f"media_{medium.kind}"
        if medium.size is None:
            return None if self._takes_addresses and medium.url else "media_address"
        is_large = self._max_bytes is not None and medium.size > self._max_bytes
        return "media_size" if is_large else None
