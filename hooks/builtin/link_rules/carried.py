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
_MOST_TRIES = 4096
"""Most places of the prompt that are compared. An address with more of them counts as carrying text."""


class Carried:
    """Tells whether an address carries a run of `least` letters and digits of a request's prompt. Definitions
    of tools do not count, and neither do case, blanks and punctuation."""

    def __init__(self, request: GenerationRequest, least: int) -> None:
        self._request = request
        self._least = least
        self._step = (least + 1) // 2
        self._size = least - self._step + 1

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
    def _places(self) -> dict[str, list[int]]:
        """The places of the prompt's pieces, which begin at each multiple of `_step`. Each run of `least`
        characters has a piece."""
        places: dict[str, list[int]] = {}
        for i in range(0, len(self._prompt), self._step):
            places.setdefault(self._prompt[i : i + self._size], []).append(i)
        return places

    def _is_in_prompt(self, text: str) -> bool:
        tries = 0
        for i in range(len(text) - self._size + 1):
            for place in self._places.get(text[i : i + self._size], ()):
                tries += 1
                if tries > _MOST_TRIES or self._is_run(text, i, place):
                    return True
        return False

    def _is_run(self, text: str, start: int, place: int) -> bool:
        """Whether a run goes through `start` in the text and through `place` in the prompt."""
        left, first = max(0, start - self._least), max(0, place - self._least)
        before = _num_same(text[left:start][::-1], self._prompt[first:place][::-1])
        behind = _num_same(text[start : start + self._least], self._prompt[place : place + self._least])
        return before + behind >= self._least


def _num_same(one: str, other: str) -> int:
    """The number of characters at the beginning that both texts have."""
    differs = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differs, min(len(one), len(other)))


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
    """The texts that a run says in base64, if it begins at its first, second, third or fourth character."""
    for begin in range(4):
        piece = run[begin:]
        try:
            yield base64.b64decode(piece[: len(piece) // 4 * 4]).decode("utf-8", "ignore")
        except (binascii.Error, ValueError):
            continue
