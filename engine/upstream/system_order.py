"""Finds out which models of an upstream refuse more than one system message, and folds them for these."""

import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.protocol import EngineError, GenerationRequest, RequestError
from engine.protocol.system_messages import SystemMessages, folded_request
from engine.upstream.json_text import read_json

_ORDER = re.compile(
    r"\bsystem (?:message|prompt|role|instruction)s?\b.{0,80}\b(?:beginning|begin|first|start|only|once|one"
    r"|single|multiple|support\w*|allowed|must|not)\b"
    r"|\b(?:only|multiple|more than one|first|beginning)\b.{0,60}\bsystem (?:message|prompt|role)s?\b"
    r"|\broles? must alternate"
    r"|\b(?:unexpected|invalid|unsupported|unknown|wrong)\b.{0,20}\brole\b.{0,40}\b(?:system|developer)\b"
    r"|\b(?:system|developer)\b.{0,20}\brole\b.{0,40}\b(?:unexpected|invalid|unsupported|not supported)"
    r"|\brole\b.{0,80}'user'.{0,12}'assistant'",
    re.I | re.S,
)
"""The words of chat templates (Qwen, Mistral, Gemma), vLLM, llama.cpp, Mistral's API and the Messages API."""
_MOST_MODELS = 1024

T = TypeVar("T")


class SystemOrderError(Exception):
    """The cause of an upstream's refusal: the place or the number of the system messages."""


def order_fault(status: int, body: bytes) -> SystemOrderError | None:
    """Whether an upstream's error says that."""
    if status not in (400, 422, 500):
        return None
    try:
        text = str(read_json(body))
    except (ValueError, RecursionError):
        text = body.decode(errors="replace")
    return SystemOrderError() if _ORDER.search(text) else None


class SystemOrder:
    """Knows which models of one upstream take a single system message."""

    def __init__(self, choice: SystemMessages) -> None:
        self._choice = choice
        self._folding = set[str]()

    async def ask(self, request: GenerationRequest, ask: Callable[[GenerationRequest], Awaitable[T]]) -> T:
        """Returns the result of `ask`. A request that is refused for its system messages is asked once more,
        folded. `ask` raises such a refusal before any output."""
        other = None if self._choice == "keep" else folded_request(request)
        if other is None:
            return await ask(request)
        if self._choice == "fold" or request.model in self._folding:
            return await ask(other)
        try:
            return await ask(request)
        except (RequestError, EngineError) as error:
            if not isinstance(error.__cause__, SystemOrderError):
                raise
        answer = await ask(other)
        # Not before: a caller may have put such words into an error that quotes the request.
        if len(self._folding) < _MOST_MODELS:
            self._folding.add(request.model)
        return answer
