"""The values that stand in a request's own texts: an answer may repeat them to the caller who sent them."""

import ipaddress
from collections.abc import Callable, Container

from hooks import GenerationRequest, prompt_texts
from hooks.prompts.sources import Source

_JOINING = ".-+@'/%&"
"""Signs within addresses, hosts, numbers and paths: after one of them a value goes on."""
_SIGNS = 4
"""Most such signs that are read in a row."""


class KnownTexts(Container[str]):
    """Contains each value that stands by itself in a text of the sources. The texts are read when a value is
    first looked up, since most answers have none."""

    def __init__(
        self,
        request: GenerationRequest,
        sources: Container[Source],
        plain: Callable[[str], str],
        longest: int,
    ) -> None:
        """`plain`: reads a text as the guard reads a stream. `longest`: most characters of a value, so that
        no more of one is held while it grows."""
        self._request, self._sources, self._plain, self._longest = request, sources, plain, longest
        self._texts: list[str] | None = None
        self._found: dict[str, bool] = {}

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, str) or not 0 < len(value) <= self._longest:
            return False
        if value not in self._found:
            self._found[value] = any(_has(text, value) for text in self._read())
        return self._found[value]

    def _read(self) -> list[str]:
        if self._texts is None:
            texts = prompt_texts(self._request)
            # A text whose source is not certain may be a stranger's.
            self._texts = [
                self._plain(one.text) for one in texts if one.is_certain and one.is_of(self._sources)
            ]
        return self._texts


def _has(text: str, value: str) -> bool:
    """Whether the value is in the text, and is no part of a longer word, number, host or address."""
    begin = text.find(value)
    while begin >= 0:
        if not _goes_on(text, begin, begin + len(value), value):
            return True
        begin = text.find(value, begin + 1)
    return False


def _goes_on(text: str, begin: int, end: int, value: str) -> bool:
    """Whether the text has more of a longer value directly before `begin` or from `end` on."""
    inner = _JOINING + ":" * (":" in value)
    before = text[max(0, begin - _SIGNS - 1) : begin].rstrip(inner)[-1:]
    rest = text[end : end + _SIGNS + 1]
    if rest[:1] == "/" and _is_machine(value):  # a path on the machine, as in http://10.0.0.1/index
        rest = ""
    after = rest.lstrip(inner)[:1]
    return (_joins(before) and _joins(value[0], inner)) or (_joins(after) and _joins(value[-1], inner))


def _joins(sign: str, inner: str = "") -> bool:
    return sign.isalnum() or sign == "_" or (sign != "" and sign in inner)


def _is_machine(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True
