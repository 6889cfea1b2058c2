"""Half characters: the escapes `\\ud83d` and `\\ude00` of JSON by themselves. A half is no text: nothing can
write it as UTF-8."""

import re
from typing import Any

REPLACEMENT = "\ufffd"
"""The character that stands for wrong bytes, and for half a character without the other half."""

ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of a half in the text of JSON. Another half may be beside it."""


def whole_characters(text: str) -> str:
    """The text with its pairs of halves joined, and U+FFFD for any other half."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def with_whole_characters(value: Any, open_texts: frozenset[str] = frozenset()) -> Any:
    """JSON with `whole_characters` in all of its texts and names. `open_texts`: names of fields whose texts
    keep a half at their edges."""
    return _mended(value, keeps_edges=False, texts=open_texts)


def _mended(value: Any, *, keeps_edges: bool, texts: frozenset[str]) -> Any:
    if isinstance(value, str):
        return _inside_mended(value) if keeps_edges else whole_characters(value)
    if isinstance(value, list):
        return [_mended(one, keeps_edges=keeps_edges, texts=texts) for one in value]
    if isinstance(value, dict):
        return {
            whole_characters(name): _mended(one, keeps_edges=name in texts, texts=texts)
            for name, one in value.items()
        }
    return value


def _inside_mended(text: str) -> str:
    first = text[:1] if "\udc00" <= text[:1] <= "\udfff" else ""
    rest = text[len(first) :]
    last = rest[-1:] if "\ud800" <= rest[-1:] <= "\udbff" else ""
    return first + whole_characters(rest[: len(rest) - len(last)]) + last
