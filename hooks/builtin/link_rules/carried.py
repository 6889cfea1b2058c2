"""Text of the prompt in an address: as it is, percent-encoded, in base64 or in hexadecimal digits."""

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cached_property
from urllib.parse import unquote, unquote_plus

from hooks import GenerationRequest, prompt_texts

_NOT_OF_WORD = re.compile(r"[\W_]+")
_ADDRESS = re.compile(r"\S{0,64}//\S*|www\.\S*")
"""An address in the prompt. An answer may repeat its parts."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
_URL_SAFE = str.maketrans("-_", "+/")
_MOST_TRIES = 64
"""Most parts that are compared in full. An address with more of them counts as carrying text."""


class Carried:
    """Tells whether an address carries a run of `least` letters and digits of a request's prompt. Definitions
    of tools do not count, and neither do case, blanks and punctuation."""

    def __init__(self, request: GenerationRequest, least: int) -> None:
        self._request = request
        self._least = least
        self._step = (least + 1) // 2

    def __call__(self, part: str) -> bool:
        """`part`: the part of an address behind its host."""
        if len(part) < self._least // 2:
            return False
        return any(self._is_in_prompt(text) for text in dict.fromkeys(map(_plain, _readings(part))))

    @cached_property
    def _prompt(self) -> str:
        texts = (text.text for text in prompt_texts(self._request) if text.source != "definition")
        return "\n".join(_plain(_ADDRESS.sub(" ", text)) for text in dict.fromkeys(texts))

    @cached_property
    def _pieces(self) -> set[str]:
        """Pieces of the prompt, one at each multiple of `_step`. Each run of `least` characters has one."""
        size = self._least - self._step + 1
        return {self._prompt[i : i + size] for i in range(0, len(self._prompt), self._step)}

    def _is_in_prompt(self, text: str) -> bool:
        size = self._least - self._step + 1
        tries = 0
        for i in range(len(text) - size + 1):
            if text[i : i + size] in self._pieces:
                tries += 1
                if tries > _MOST_TRIES or self._has_run_around(text, i, i + size):
                    return True
        return False

    def _has_run_around(self, text: str, start: int, end: int) -> bool:
        first, last = max(0, end - self._least), min(start, len(text) - self._least)
        return any(text[i : i + self._least] in self._prompt for i in range(first, last + 1))


def _plain(text: str) -> str:
    return _NOT_OF_WORD.sub("", text.casefold())


def _readings(part: str) -> Iterator[str]:
    plain = unquote_plus(part)
    yield part
    yield plain
    yield unquote(plain)
    for text in (part, unquote(part)):
        for run in _BASE64.findall(text):
            yield from _decoded(run.translate(_URL_SAFE))
        for run in _HEX.findall(text):
            for begin in range(2):  # a digit of another text may stand before the run
                yield bytes.fromhex(run[begin:][: (len(run) - begin) // 2 * 2]).decode("utf-8", "ignore")


def _decoded(run: str) -> Iterator[str]:
    """What a run says in base64, if it begins at its first, second, third or fourth character."""
    for begin in range(4):
        piece = run[begin:]
        try:
            yield base64.b64decode(piece[: len(piece) // 4 * 4]).decode("utf-8", "ignore")
        except (binascii.Error, ValueError):
            continue
