"""The conversation that a judge reads: turns of a user and of an assistant."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from hooks import GenerationRequest

EMPTY = "empty"
"""The reason for refusing a prompt without text. A model would take an empty conversation for a safe one."""
TOO_LONG = "too_long"
"""The reason for refusing a prompt that is longer than the guard model's context."""
Role = Literal["user", "assistant", "system"]
_BETWEEN = "\n\n"
"""The text between the texts of neighbouring messages of one role."""

_MARKUP = 32
"""Characters that a layout adds to a turn, about."""


class Turn(NamedTuple):
    role: Role
    text: str


def conversation_of(
    request: GenerationRequest, output_index: int = 0, *, with_system: bool = False
) -> list[Turn]:
    """The turns of the request's prompt, in alternating roles, a user's first. The last one is a user's, and
    perhaps empty, or the beginning of the reply.

    A completion's prompt is a user's turn. Any text but an assistant's counts as the user's: results of
    tools, and system messages unless the layout knows them (`with_system`). Calls of tools are the
    assistant's. Images, sound and files are left out.
    """
    if request.prompts:
        prompt = request.prompts[output_index // request.sampling.n]
        return [Turn("user", prompt if isinstance(prompt, str) else "")]
    turns = _alternating(Turn(_role(message, with_system), _text(message)) for message in request.messages)
    return turns if turns and turns[-1].role != "system" else [*turns, Turn("user", "")]


def length_of(turns: Iterable[Turn]) -> int:
    """About how many characters a layout of the turns has."""
    return sum(len(turn.text) + _MARKUP for turn in turns)


def _alternating(turns: Iterable[Turn]) -> list[Turn]:
    joined: list[Turn] = []
    for turn in turns:
        if joined and joined[-1].role == turn.role:
            texts = filter(None, (joined[-1].text, turn.text))
            joined[-1] = Turn(turn.role, _BETWEEN.join(texts))
            continue
        if turn.role == "assistant" and (not joined or joined[-1].role == "system"):
            joined.append(Turn("user", ""))
        joined.append(turn)
    return joined


def _role(message: Mapping[str, Any], with_system: bool) -> Role:
    role = message.get("role")
    if role == "assistant":
        return "assistant"
    return "system" if with_system and role in ("system", "developer") else "user"


def _text(message: Mapping[str, Any]) -> str:
    fields = ("reasoning_content", "reasoning", "content", "refusal")
    texts = [text for field in fields for text in _texts(message.get(field))]
    calls = message.get("tool_calls") or ()
    texts += [json.dumps(call, ensure_ascii=False, default=dict) for call in calls]
    return _BETWEEN.join(filter(None, texts))


def _texts(content: Any) -> Sequence[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list | tuple) else ()
    texts = (part.get("text") or part.get("refusal") if isinstance(part, Mapping) else part for part in parts)
    return [text for text in texts if isinstance(text, str)]
