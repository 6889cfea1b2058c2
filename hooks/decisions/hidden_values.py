"""Keeps the caller's values out of decisions (contract 3.18, 9.1)."""

import json
from collections.abc import Mapping

PIECE = 4
"""The length of a piece of a value. No text of a decision has such a piece, wherever the stream is cut."""

_json = json.JSONEncoder(ensure_ascii=False).encode
_ascii_json = json.JSONEncoder().encode


class HiddenValues:
    """Writes asterisks in the place of the caller's values. Prepared when a request's first text is hidden.

    A text may be any part of a value, because a hook decides on any part of its stream. So all pieces of
    `PIECE` characters that the values have are looked up, and hiding costs about the length of the text.
    """

    __slots__ = ("_forms", "_num_prepared", "_pieces", "_values")

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values`: by placeholder. It may grow."""
        self._values = values
        self._num_prepared = 0
        self._forms = ""
        self._pieces: dict[int, set[str]] = {}
        """The pieces of values, by their length, which is at most `PIECE`. A shorter value is one piece."""

    def hide(self, text: str, before: str = "") -> str:
        """The text with an asterisk for each character that is in a piece of a value. `before`: the
        text before it, of which the last `PIECE - 1` characters are enough."""
        if not self._values:
            return text
        self._prepare()
        whole = before + text
        shown = list(whole)
        for size, pieces in self._pieces.items():
            for i in range(len(whole) - size + 1):
                if whole[i : i + size] in pieces:
                    shown[i : i + size] = "*" * size
        return "".join(shown[len(before) :])

    def hide_part(self, text: str) -> str:
        """The text that `hide` returned, or a part of it: asterisks, if all of it is a part of a value."""
        if not self._values or len(text) >= PIECE:
            return text
        self._prepare()
        return "*" * len(text) if text in self._forms else text

    def _prepare(self) -> None:
        if self._num_prepared == len(self._values):
            return
        self._num_prepared = len(self._values)
        forms = {form for value in self._values.values() for form in _forms_of(value)}
        self._forms = "\0".join(forms)
        self._pieces = {}
        for form in forms:
            size = min(PIECE, len(form))
            pieces = self._pieces.setdefault(size, set())
            pieces.update([form[i : i + size] for i in range(len(form) - size + 1)])


def _forms_of(value: str) -> set[str]:
    """The value as text has it, and as strings of JSON have it."""
    escaped = _json(value)[1:-1]
    forms = {value, escaped, _ascii_json(value)[1:-1]}
    forms |= {form.replace("/", "\\/") for form in forms}
    return forms - {""}
