"""The values that stand in a request's own texts: an answer may repeat them to the caller who sent them."""

from collections.abc import Callable, Container

from hooks import GenerationRequest, prompt_texts
from hooks.prompts.sources import Source


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
    """Whether the value is in the text, and is no part of a longer run of letters and digits."""
    begin = text.find(value)
    while begin >= 0:
        end = begin + len(value)
        before, after = text[begin - 1 : begin], text[end : end + 1]
        if not (before.isalnum() and value[0].isalnum()) and not (after.isalnum() and value[-1].isalnum()):
            return True
        begin = text.find(value, begin + 1)
    return False
