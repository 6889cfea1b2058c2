"""The texts that a reader may see in a text: as written, without escapes and markup, and without a disguise.

Case, look-alikes and unseen characters need no reading: features do not see them (`features`).
"""

import binascii
import re
from collections.abc import Iterator

from hooks.detect.readings import LOOSE

_HAS_ESCAPES = re.compile(
    r"\\[ux][\da-fA-F]|%[2-7][\da-fA-F]|&#|&[a-z]{2,8};|\w<[/a-z!]|[^\W_][*~`]+[^\W_]"
).search
_SPACED = re.compile(r"(?<![^\W_])(?:[^\W_][ .·*|/_-]{1,3}){5,}[^\W_](?![^\W_])")
_BETWEEN_LETTERS = re.compile(r"(?<=\w)[ .·*|/_-](?=\w)")
_LEET = str.maketrans("013457@$!", "oieastasi")
_LEET_WORD = re.compile(r"(?i)\b(?=[\w@$!]*[a-z])(?=[\w@$!]*[013457@$])[\w@$!]{2,24}")
_HAS_LEET = re.compile(r"(?i)[a-z][013457@$][a-z]").search
_CODED = re.compile(r"[A-Za-z0-9+/_-]{24,4096}={0,2}")
_IS_HEX = re.compile(r"(?:[\da-fA-F]{2}){12,}").fullmatch
_MOST_CODED = 16
"""Most runs of a text that are decoded."""
_DEEPEST = 3
"""Most codings in each other."""


def readings(text: str) -> Iterator[str]:
    """The text as written first, then its other readings. They are few, and none is much longer."""
    yield text
    if _HAS_ESCAPES(text):
        yield LOOSE.read(text)
    if _SPACED.search(text):
        yield _SPACED.sub(lambda found: _BETWEEN_LETTERS.sub("", found[0]), text)
    if _HAS_LEET(text):
        yield _LEET_WORD.sub(lambda found: found[0].translate(_LEET), text)
    yield from _decoded(text, _DEEPEST)


def _decoded(text: str, depth: int) -> Iterator[str]:
    """The texts in runs of base64 and of hexadecimal digits, in place of these."""
    plain = _CODED.sub(_text_or_run, text, count=_MOST_CODED)
    if plain != text:
        yield plain
        if depth > 1:
            yield from _decoded(plain, depth - 1)


def _text_or_run(found: re.Match[str]) -> str:
    text = _text_of(found[0])
    return found[0] if text is None else f" {text} "


def _text_of(run: str) -> str | None:
    """The text that a run of characters encodes; None: it encodes none."""
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = (
            bytes.fromhex(plain) if _IS_HEX(plain) else binascii.a2b_base64(plain + "=" * (-len(plain) % 4))
        )
        text = data.decode()
    except (ValueError, binascii.Error):
        return None
    is_text = all(char.isprintable() or char.isspace() for char in text)
    return text if is_text and (" " in text or _CODED.fullmatch(text)) else None
