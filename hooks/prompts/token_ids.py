"""Prompts of token ids: into text for hooks to read, and back."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from engine.protocol import GenerationRequest, Prompt, RequestError, Tokenizer
from engine.protocol.fields.table import FIELDS

UNREADABLE = tuple(sorted(field.name for field in FIELDS.values() if field.carries == "tokens"))
"""Fields with which other servers take a prompt, or a part of it, in a form other than text."""


def has_token_ids(request: GenerationRequest) -> bool:
    return not all(isinstance(prompt, str) for prompt in request.prompts)


async def in_text(request: GenerationRequest, tokenizer: Tokenizer | None) -> GenerationRequest:
    """The request as hooks are shown it. Raises `RequestError` for a prompt that cannot be made text."""
    for name in UNREADABLE:
        if request.extra.get(name):
            raise RequestError(f"{name}: it cannot be shown to this server's guardrails.", param=name)
    if not has_token_ids(request):
        return request
    if tokenizer is None:
        raise RequestError(
            "prompt: token ids cannot be shown to this server's guardrails: its engine has no tokenizer.",
            param="prompt",
        )
    return replace(request, prompts=await asyncio.to_thread(_decoded, request.prompts, tokenizer))


async def in_ids(
    admitted: GenerationRequest,
    asked: GenerationRequest,
    shown: GenerationRequest,
    tokenizer: Tokenizer | None,
) -> GenerationRequest:
    """`admitted` with token ids where `asked` has them. Unchanged prompts keep their token ids."""
    if tokenizer is None or shown is asked:
        return admitted

    def prompts() -> Iterator[Prompt]:
        for text, was, own in zip(admitted.prompts, shown.prompts, asked.prompts, strict=True):
            if text == was:
                yield own
            elif isinstance(own, str) or not isinstance(text, str):
                yield text
            else:  # the text has the special tokens already
                yield tuple(tokenizer.encode(text, add_special_tokens=False))

    return replace(admitted, prompts=await asyncio.to_thread(tuple, prompts()))


def _decoded(prompts: tuple[Prompt, ...], tokenizer: Tokenizer) -> tuple[Prompt, ...]:
    try:
        return tuple(p if isinstance(p, str) else tokenizer.decode(p) for p in prompts)
    except OverflowError as error:
        raise RequestError("prompt: there are no such token ids.", param="prompt") from error
