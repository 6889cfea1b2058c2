"""The source of each text of a prompt (contract 8.6), by the message's role and the kind of its part.

APIs and chat templates have many roles and kinds of parts, and callers send others. A role or a part that is
not known counts as the caller's words. It may not be: then `Voice.is_certain` is False.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Source = Literal["system", "user", "assistant", "tool", "document", "definition"]
"""The writer and the kind of a text of a prompt (contract 8.6). `tool`: a tool's result. `document`: one of
the request. `definition`: of a tool or of the answer's form, with the choice of a tool. The completions'
prompts, stop strings, and what an unknown role or field has, count as the user's."""

STRANGERS: frozenset[Source] = frozenset({"tool", "document"})
"""The sources of text that neither the caller nor the operator wrote."""


class Voice(NamedTuple):
    source: Source
    is_certain: bool = True
    """Whether the source is known. False: the text counts as of this source, and may be a stranger's."""


USER = Voice("user")
_BY_ROLE: Mapping[str, Source] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
}
"""Llama's template calls results `ipython`, and GLM's `observation`."""
_RESULT = ("_output", "_outputs", "_result", "_results", "_response")
"""Ends of the names of tools' results, such as `function_call_output` and `web_search_tool_result`."""
DOCUMENTS = {
    *("document", "documents", "document_url", "search_result", "search_results"),
    *("file", "files", "file_url", "input_file"),
}
"""The names of fields and kinds of parts that have documents."""
_OF_SPEAKER = {
    *(
        "text",
        "input_text",
        "output_text",
        "refusal",
        "thinking",
        "reasoning",
        "reasoning_text",
        "summary_text",
    ),
    *("redacted_thinking", "image", "input_image", "image_url", "image_embeds", "audio_url", "audio_embeds"),
    *("input_audio", "audio", "video", "video_url", "input_video", "tool_use", "tool_call", "tool_calls"),
}
"""The kinds of parts that are the words, the images and the calls of a speaker."""
KINDS = _OF_SPEAKER | DOCUMENTS
"""The known kinds of parts. Any other kind is the caller's own word."""


def voice_of(message: Mapping[str, Any]) -> Voice:
    """The source of a message, by its role."""
    role = message.get("role")
    if not isinstance(role, str):
        return Voice("user", is_certain=False)
    if role in _BY_ROLE:
        return Voice(_BY_ROLE[role])
    if role.split(" ")[0] in DOCUMENTS:  # Granite's template: `document {"doc_id": 1}`
        return Voice("document")
    return Voice("tool") if role.endswith(_RESULT) else Voice("user", is_certain=False)


def voice_of_part(part: Any, speaker: Voice) -> Voice:
    """The source of a part of a message by `speaker`. All of a tool's result is the tool's."""
    if speaker.source == "tool" or not isinstance(part, Mapping) or "type" not in part:
        return speaker
    kind = part["type"]
    if isinstance(kind, str) and kind in _OF_SPEAKER:
        return speaker
    if isinstance(kind, str) and kind.endswith(_RESULT) and kind not in DOCUMENTS:
        return Voice("tool")
    return voice_of_field(kind, speaker)


def voice_of_field(name: Any, speaker: Voice) -> Voice:
    """The source of the texts in a field that the API does not have."""
    if speaker.source == "tool":
        return speaker
    if isinstance(name, str) and name in DOCUMENTS:
        return Voice("document")
    return speaker._replace(is_certain=False)
