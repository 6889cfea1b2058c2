"""A guard that masks a word, and what an upstream of the Messages API gets behind it."""

from typing import Any

from engine.protocol import GenerationRequest
from engine.upstream.messages.engine import MessagesEngine
from hooks import emit
from hooks.prompts.texts import PromptText, with_prompt_texts
from tests.engine.upstream.conftest import FakeUpstream
from tests.proxy.conftest import Client, Serve

SECRET, MASK = "hunter2", "***"
EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Masks:
    """A guard that masks a word in prompts."""

    def __call__(self, chunk: Any) -> Any:
        return emit(chunk.pending)

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        return masked(request)


def masked(request: GenerationRequest) -> GenerationRequest:
    def rewrite(text: PromptText) -> str:
        return text.text.replace(SECRET, MASK)

    return with_prompt_texts(request, rewrite)


def changed(value: Any) -> Any:
    """The value with the mask in all texts."""
    if isinstance(value, str):
        return value.replace(SECRET, MASK)
    if isinstance(value, list):
        return [changed(one) for one in value]
    return {k: changed(v) for k, v in value.items()} if isinstance(value, dict) else value


async def front_of(serve: Serve, upstream: FakeUpstream, *hooks: Any) -> Client:
    return await serve(MessagesEngine(upstream.url), *hooks, names=[])
