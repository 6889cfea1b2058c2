"""Refuses a prompt that cannot fit the model, by its length, before anybody reads it."""

from collections.abc import Mapping

from engine.protocol import GenerationRequest, ModelInfo
from engine.protocol.prompt_size import check_num_bytes, check_num_tokens


def check_prompts(request: GenerationRequest, info: ModelInfo) -> None:
    """Raise `RequestError` for a prompt that is too long for the model, whatever its tokens are.

    A chat template may leave out a part of the assistant's messages, so they do not count. A prompt
    that is to be truncated may have any length.
    """
    if info.max_prompt_bytes is None or request.extra.get("truncate_prompt_tokens") is not None:
        return
    param = request.prompt_field
    for prompt in request.prompts:
        if isinstance(prompt, str):
            check_num_bytes(prompt, info.max_prompt_bytes, info.max_model_len, param)
        else:
            check_num_tokens(len(prompt), info.max_model_len, param)
    texts: list[str] = []
    for message in request.messages:
        content = () if message.get("role") == "assistant" else message.get("content")
        for part in content if isinstance(content, list | tuple) else (content,):
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                texts.append(text)
    check_num_bytes("".join(texts), info.max_prompt_bytes, info.max_model_len, param)
