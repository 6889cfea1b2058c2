"""Placeholders: the texts that a model is shown in place of a caller's values, and the way back.

A placeholder is `[EMAIL_ADDRESS_KCTWQZBNRXMPDGLV]`: the entity, and letters that are derived from the value,
the caller and a key of the operator's. So a value has the same placeholder in every turn of a conversation,
though nothing is kept between requests, and nobody without the key can make one. Only a placeholder that this
request has issued comes back (contract 9.3).
"""

import hashlib
import hmac
import os
import re
import secrets
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from itertools import count
from pathlib import Path

from hooks.detect.detector import Match

KEY, KEY_FILE = "WEIR_RESTORE_KEY", "WEIR_RESTORE_KEY_FILE"
"""The environment's variables that have the operator's key, or name a file that has it."""
_LEAST_KEY = 16
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""No vowels and no digits: a placeholder contains no word, and looks like no number or key to a guard."""
_NUM_OF_VALUE = 12
_NUM_OF_CHECK = 4
_LONGEST_LABEL = 24
_NUM_LETTERS = _NUM_OF_VALUE + _NUM_OF_CHECK
_FORM = re.compile(rf"\[([A-Z0-9_]{{1,{_LONGEST_LABEL}}})_([{_LETTERS}]{{{_NUM_LETTERS}}})\]")
LONGEST = _LONGEST_LABEL + _NUM_LETTERS + 3
"""Most characters of a placeholder."""
RESTORED, PASSED = -1, -2
"""The rules of matches that are a placeholder, and of those that are a value of the caller's."""


class Placeholders:
    """The values of one request's prompt by their placeholders."""

    def __init__(self, caller: str, typed: Iterable[str] = ()) -> None:
        """`caller`: as `GenerationRequest.caller`. `typed`: the texts of the prompt. A placeholder that
        stands in them already is the caller's own text, so it is never issued."""
        self._caller = caller
        self._typed = {found[0] for text in typed for found in _FORM.finditer(text)}
        self._values: dict[str, tuple[str, str]] = {}
        """The entity and the value, by placeholder."""
        self._issued: dict[tuple[str, str], str] = {}
        """The placeholder, by entity and value."""
        self._issued_ones: CallerValues | None = None
        """The placeholders that `scan` looks for. None: they are not collected yet."""
        self.passing: Container[str] = frozenset()
        """The values that an answer may have, in the form in which a guard reads a stream's text. The guard
        sets it."""

    def __deepcopy__(self, memo: object) -> "Placeholders":
        return self  # nothing changes it once the prompt is read, and it may refer to the whole prompt

    @property
    def values(self) -> set[str]:
        return {value for _, value in self._values.values()}

    @property
    def by_placeholder(self) -> dict[str, str]:
        return {placeholder: value for placeholder, (_, value) in self._values.items()}

    def issue(self, entity: str, value: str) -> str:
        """The placeholder for a value."""
        placeholder = self._issued.get((entity, value))
        if placeholder is None:
            placeholder = self._issued[entity, value] = self._new(entity, value)
            self._values[placeholder] = (entity, value)
            self._issued_ones = None
        return placeholder

    def _new(self, entity: str, value: str) -> str:
        made = (placeholder_for(entity, value, self._caller, number) for number in count())
        return next(one for one in made if one not in self._typed and one not in self._values)

    def value(self, placeholder: str) -> str:
        """The value of an issued placeholder."""
        return self._values[placeholder][1]

    def scan(self, text: str, start: int, is_final: bool) -> tuple[list[Match], int]:
        """The issued placeholders in `text[start:]`, and the place from which on the text may become one."""
        if self._issued_ones is None:
            self._issued_ones = CallerValues(self.by_placeholder)
        places, open_from = self._issued_ones.scan(text, start, is_final)
        return [Match(*place, self._values[text[slice(*place)]][0], RESTORED) for place in places], open_from


class CallerValues:
    """The values that guards of a request bring back, by their placeholders (see `Chunk.caller_values`)."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._sorted = sorted(values)

    def value(self, placeholder: str) -> str:
        return self._values[placeholder]

    def scan(self, text: str, start: int, is_final: bool) -> tuple[list[tuple[int, int]], int]:
        """The places of the placeholders in `text[start:]`, and the place from which on the text may become
        one."""
        found: list[tuple[int, int]] = []
        begin = text.find("[", start)
        while begin >= 0:
            end = text.find("]", begin, begin + LONGEST) + 1
            if end and text[begin:end] in self._values:
                found.append((begin, end))
            elif not end and not is_final and self._is_beginning(text[begin : begin + LONGEST]):
                return found, begin
            begin = text.find("[", begin + 1)
        return found, len(text)

    def _is_beginning(self, text: str) -> bool:
        place = bisect_left(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)


def placeholder_for(entity: str, value: str, caller: str, number: int = 0) -> str:
    """The placeholder for a caller's value. `number`: distinguishes it from earlier ones that are taken."""
    label = re.sub(r"[^A-Z0-9]+", "_", entity.upper())[:_LONGEST_LABEL].strip("_") or "VALUE"
    letters = _letters(_NUM_OF_VALUE, "value", caller, str(number), label, value)
    return f"[{label}_{letters}{_letters(_NUM_OF_CHECK, 'check', label, letters)}]"


def placeholders_in(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The places of placeholders that some request was issued under the operator's key."""
    for found in _FORM.finditer(text, start, end):
        label, letters = found.groups()
        value, check = letters[:_NUM_OF_VALUE], letters[_NUM_OF_VALUE:]
        if hmac.compare_digest(check, _letters(_NUM_OF_CHECK, "check", label, value)):
            yield found.span()


def _letters(num: int, *parts: str) -> str:
    """Letters that nobody can tell without the operator's key."""
    message = b"".join(len(part).to_bytes(8, "big") + part.encode(errors="surrogatepass") for part in parts)
    number = int.from_bytes(hmac.digest(operator_key(), message, hashlib.sha256), "big")
    letters: list[str] = []
    for _ in range(num):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return "".join(letters)


@cache
def operator_key() -> bytes:
    """The operator's key, from the environment or a file; else one that this process draws.

    Raises `ValueError` for a file that cannot be read and for a key that is too short.
    """
    name = KEY_FILE if os.environ.get(KEY_FILE) else KEY
    key = os.environ.get(name, "")
    if name == KEY_FILE:
        try:
            key = Path(key).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{KEY_FILE}: the file cannot be read ({type(error).__name__})") from None
    if name not in os.environ:
        return secrets.token_bytes(32)
    if len(key.strip()) < _LEAST_KEY:
        raise ValueError(f"{name}: the key needs at least {_LEAST_KEY} characters")
    return key.strip().encode()
