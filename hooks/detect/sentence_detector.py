"""A detector made from a finder that judges whole sentences."""

from collections.abc import Callable, Sequence

from hooks.detect.detector import Findings, Match, moved
from hooks.detect.windows import Sentences


class SentenceDetector:
    """Finds what a finder finds in each sentence. A scan always starts at the beginning of a sentence."""

    reach = 0

    def __init__(self, find: Callable[[str], Sequence[Match]], max_sentence: int) -> None:
        """`find`: returns the matches in a sentence. `max_sentence`: most characters of a sentence."""
        self._find = find
        self._sentences = Sentences(max_sentence)
        self.longest = max_sentence

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        matches: list[Match] = []
        while start < len(text) and (end := self._sentences.end(text, start, is_final)) is not None:
            matches += moved(self._find(text[start:end]), start)
            start = end
        return matches, start
