"""The images, sounds and files of a prompt. Hooks see that they are there, and may refuse the prompt."""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote_to_bytes

from engine.protocol import GenerationRequest

MediumKind = Literal["image", "audio", "video", "file"]

_KINDS: dict[str, MediumKind] = {
    "image_url": "image",
    "video_url": "video",
    "audio_url": "audio",
    "input_audio": "audio",
    "file": "file",
    "image_embeds": "image",
    "audio_embeds": "audio",
}
"""The kinds, by the field of a content part that holds the medium (of OpenAI's chat, and of vLLM)."""
_ADDRESSES = ("url", "data", "file_data", "file_id")


class PromptMedium(NamedTuple):
    """One image, sound, video or file of a prompt."""

    kind: MediumKind
    place: str
    """The place, such as `messages[2].content[1]`, as in `PromptText.place`."""
    media_type: str | None
    """The type that the caller gave, such as `image/png`; for sound, its format. It is not checked."""
    size: int | None
    """Bytes. None: they are elsewhere, at `url`, or they cannot be read."""
    sha256: str | None
    """The hash of the bytes, in hexadecimal digits; None with `size`."""
    url: str | None
    """The address of bytes that are elsewhere, or the upstream's id of a file."""


def prompt_media(request: GenerationRequest) -> list[PromptMedium]:
    """The images, sounds, videos and files of a request's messages, in order, and then those of its other
    fields, which an upstream may read as messages too.

    It reads and hashes all of their bytes, so it takes some milliseconds for a large image.
    """
    return [*media_of(request.messages), *_media_within(request.extra, "extra")]


def media_of(messages: Iterable[Mapping[str, Any]]) -> Iterator[PromptMedium]:
    """The media of messages, as `prompt_media` gives them."""
    for i, message in enumerate(messages):
        for j, part in enumerate(_parts(message)):
            yield from _media(part, f"messages[{i}].content[{j}]")


def _parts(message: Mapping[str, Any]) -> Iterator[Any]:
    content = message.get("content")
    yield from content if isinstance(content, list | tuple) else ()


def _media_within(value: Any, place: str, *, is_part: bool = False) -> Iterator[PromptMedium]:
    """The media of a value whose shape Weir does not know. `is_part`: it is in a list called `content`."""
    if isinstance(value, Mapping):
        found = list(_media(value, place)) if is_part or value.get("type") in _KINDS else []
        yield from found
        for name, one in value.items() if not found else ():
            yield from _media_within(one, f"{place}.{name}", is_part=name == "content")
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            yield from _media_within(one, f"{place}[{i}]", is_part=is_part)


def _media(part: Any, place: str) -> Iterator[PromptMedium]:
    if not isinstance(part, Mapping):
        return
    for field, kind in _KINDS.items():
        value = part.get(field)
        if value is None and part.get("type") != field:
            continue  # without bytes, a part of this type names a medium that the upstream keeps
        name = "data" if field.endswith("_embeds") else "url"
        yield _medium(kind, place, value if isinstance(value, Mapping) else {name: value})


def _medium(kind: MediumKind, place: str, value: Mapping[str, Any]) -> PromptMedium:
    media_type = value.get("format") if isinstance(value.get("format"), str) else None
    given = [name for name in _ADDRESSES if value.get(name) is not None]
    if len(given) != 1 or not isinstance(value[given[0]], str):  # an upstream takes any one of several
        return PromptMedium(kind, place, media_type, None, None, None)
    text = value[given[0]]
    head, _, body = text.partition(",")
    scheme, _, described = head.partition(":")
    if scheme.lower() != "data":
        if given[0] in ("url", "file_id") or "://" in head:  # as a document of the Messages API
            return PromptMedium(kind, place, media_type, None, None, text or None)
        return _inline(kind, place, media_type, text, is_base64=True)
    named, *options = described.split(";")
    return _inline(kind, place, media_type or named or None, body, is_base64="base64" in options)


def _inline(
    kind: MediumKind, place: str, media_type: str | None, text: str, *, is_base64: bool
) -> PromptMedium:
    try:
        data = base64.b64decode(text, validate=True) if is_base64 else unquote_to_bytes(text)
    except (binascii.Error, ValueError):
        return PromptMedium(kind, place, media_type, None, None, None)
    return PromptMedium(kind, place, media_type, len(data), hashlib.sha256(data).hexdigest(), None)
