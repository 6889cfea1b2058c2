"""Text of the prompt in an address: as it is, or in one of the codings that `codings` reads."""

import re
import string
from collections.abc import Mapping
from functools import cached_property

from hooks import GenerationRequest, prompt_texts
from hooks.builtin.link_rules.codings import normal, readings
from hooks.detect.restoring import expanded

_NOT_OF_WORD = re.compile(r"[\W_]+")
_ADDRESS = re.compile(r"\S{0,64}//\S*|www\.\S*")
"""An address in the prompt. An answer may repeat its parts."""
_ROT13 = str.maketrans(string.ascii_lowercase, string.ascii_lowercase[13:] + string.ascii_lowercase[:13])
_MOST_TRIES = 4096
"""Most places of the prompt that are compared. An address with more of them counts as carrying text."""
_MOST_READINGS = 256
"""Most readings of an address. One with more of them counts as carrying text."""


class Carried:
    """Tells whether an address carries a run of `least` letters and digits of a request's prompt. Definitions
    of tools do not count, and neither do case, blanks and punctuation."""

    def __init__(
        self, request: GenerationRequest, least: int, values: Mapping[str, str] | None = None
    ) -> None:
        """`values`: see `Chunk.caller_values`. A placeholder counts as the value that it stands for."""
        self._request = request
        self._values = values or {}
        self._least = least
        self._step = (least + 1) // 2
        self._size = least - self._step + 1

    def __call__(self, part: str) -> bool:
        """`part`: the part of an address after its host."""
        part = expanded(part, self._values)
        if len(part) < self._least // 2:
            return False
        seen: set[str] = set()
        for text in readings(part, self._least):
            plain = _plain(text)
            if plain in seen or len(plain) < self._least:
                continue
            seen.add(plain)
            forms = (plain, plain[::-1], plain.translate(_ROT13))
            if len(seen) > _MOST_READINGS or any(map(self._is_in_prompt, forms)):
                return True
        return False

    @cached_property
    def _prompt(self) -> str:
        texts = (text.text for text in prompt_texts(self._request) if text.source != "definition")
        forms = dict.fromkeys(form for text in texts for form in (text, expanded(text, self._values)))
        return "\n".join(_plain(_ADDRESS.sub(" ", form)) for form in forms)

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
        after = _num_same(text[start : start + self._least], self._prompt[place : place + self._least])
        return before + after >= self._least


def _num_same(one: str, other: str) -> int:
    """The number of characters at the beginning that both texts have."""
    differs = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differs, min(len(one), len(other)))


def _plain(text: str) -> str:
    return _NOT_OF_WORD.sub("", normal(text).casefold())
