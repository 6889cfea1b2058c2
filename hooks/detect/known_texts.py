"""The values that stand in a request's own texts: an answer may repeat them to the caller who sent them."""

import ipaddress
from collections.abc import Callable, Container, Iterator
from functools import cached_property

from hooks import GenerationRequest, prompt_texts
from hooks.detect.word_index import WordIndex
from hooks.prompts.sources import Source

_JOINING = ".-+@'/%&"
"""Signs within addresses, hosts, numbers and paths: after one of them a value goes on."""
_SIGNS = 4
"""Most such signs that are read in a row."""
_GAP = "\0"
"""Stands between two texts."""
_SEARCHES = 512
"""Values that are searched before an index is made."""
_PLACES = 64 * 1024
"""Places that are looked at, of all values: most values stand by themselves in the first one."""


class KnownTexts(Container[str]):
    """Contains each value that stands by itself in a text of the sources. The texts are read when a value is
    first looked up, since most answers have none.

    The first values are searched one by one. After them an index is made, which costs as much as many
    searches. All the work is linear in the texts' length: a value for which none is left is not known.
    """

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
        self._found: dict[str, bool] = {}
        self._num_places_left = _PLACES

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, str) or not 0 < len(value) <= self._longest or _GAP in value:
            return False
        if value not in self._found:
            self._found[value] = self._has(value)
        return self._found[value]

    @cached_property
    def _text(self) -> str:
        texts = prompt_texts(self._request)
        # A text whose source is not certain may be a stranger's.
        return _GAP.join(
            self._plain(one.text) for one in texts if one.is_certain and one.is_of(self._sources)
        )

    @cached_property
    def _index(self) -> WordIndex:
        return WordIndex(self._text)

    def _has(self, value: str) -> bool:
        """Whether the value is in the texts, and is no part of a longer word, number, host or address."""
        is_early = len(self._found) < _SEARCHES
        for begin in _places(self._text, value) if is_early else self._index.places(value):
            if self._num_places_left == 0:
                return False
            self._num_places_left -= 1
            if not _goes_on(self._text, begin, begin + len(value), value):
                return True
        return False


def _places(text: str, value: str) -> Iterator[int]:
    begin = text.find(value)
    while begin >= 0:
        yield begin
        begin = text.find(value, begin + 1)


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
