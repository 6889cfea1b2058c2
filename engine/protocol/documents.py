"""Documents with a text, as parts of a chat that another API's request became.

While hooks read the prompt, a document is a part of its own kind, so that nobody takes a stranger's words for
the user's (contract 8.6). Engines get it as text.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.protocol import GenerationRequest

_KIND = "document"


def document_part(*texts: str | None) -> dict[str, Any]:
    """The part for a document of these texts, such as its title and its content."""
    return {"type": _KIND, "text": "\n\n".join(filter(None, texts))}


def with_documents_as_text(request: GenerationRequest) -> GenerationRequest:
    """The request as engines take it. A chat's own parts stay as they are: an upstream may know them."""
    if request.endpoint != "messages" or not any(map(_documents, request.messages)):
        return request
    return replace(request, messages=tuple(map(_plain, request.messages)))


def _documents(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return [part for part in parts if isinstance(part, Mapping) and part.get("type") == _KIND]


def _plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if not _documents(message):
        return message
    parts = [{**part, "type": "text"} if part.get("type") == _KIND else part for part in message["content"]]
    return {**message, "content": parts[0]["text"] if len(parts) == 1 else parts}
