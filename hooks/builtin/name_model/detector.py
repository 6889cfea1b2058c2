"""The detectors of the guard `names`: the model that ships, and a pipeline of spaCy."""

from collections.abc import Collection, Sequence

from hooks.api.extras import from_extra
from hooks.builtin.name_model.model import KINDS, NameModel
from hooks.builtin.name_model.runs import LEFT, LONGEST, Run, runs
from hooks.detect.detector import Findings, Match
from hooks.detect.rules import Allowed
from hooks.detect.sentence_detector import SentenceDetector

_SPACY_KINDS = {
    "PERSON": "PERSON",
    "PER": "PERSON",
    "GPE": "LOCATION",
    "LOC": "LOCATION",
    "FAC": "LOCATION",
    "ORG": "ORGANIZATION",
}
"""The labels of spaCy's pipelines for these kinds."""
_EVEN = 0.5
"""The probability from which a word is rather of a name than of none."""


class RunDetector:
    """Finds names in runs of words with capital letters. A scan always starts where no run is open."""

    reach = LEFT
    longest = LONGEST

    def __init__(
        self, model: NameModel, entities: Collection[str], threshold: float, allowed: Allowed
    ) -> None:
        self._model = model
        self._entities = frozenset(entities)
        self._threshold = threshold
        self._allowed = allowed

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        found, undecided = runs(text, start, is_final)
        matches: list[Match] = []
        for run in found:
            matches += [
                match for match in self._names(run) if text[match.start : match.end] not in self._allowed
            ]
        return matches, undecided

    def _names(self, run: Run) -> list[Match]:
        """The names of a run: neighbouring words that are rather of a name than of none. The kind is the
        likeliest one of all of them together, and must be as likely as the threshold says."""
        shares = self._model.shares(run)
        names: list[Match] = []
        first = 0
        while first < len(shares):
            end = first
            totals = [0.0] * len(KINDS)
            while end < len(shares) and sum(shares[end]) >= _EVEN:
                totals = [total + share for total, share in zip(totals, shares[end], strict=True)]
                end += 1
            if end > first:
                most = max(totals)
                kind = KINDS[totals.index(most)]
                if kind in self._entities and most >= self._threshold * (end - first):
                    names.append(Match(run.words[first].start, run.words[end - 1].end, kind))
            first = end + 1
        return names


def spacy_detector(
    pipeline: str, entities: Collection[str], allowed: Allowed, max_sentence: int
) -> SentenceDetector:
    """A detector of the entities that a pipeline of spaCy labels. Raises `ImportError` without spaCy, and
    `ValueError` for a pipeline that is not installed."""
    with from_extra("names", "spacy"):
        import spacy
    try:
        nlp = spacy.load(pipeline)
    except OSError as error:
        raise ValueError(f"pipeline: spaCy has no pipeline {pipeline!r}") from error

    def find(sentence: str) -> list[Match]:
        return [
            Match(found.start_char, found.end_char, kind)
            for found in nlp(sentence).ents
            if (kind := _SPACY_KINDS.get(found.label_, "")) in entities and found.text not in allowed
        ]

    return SentenceDetector(find, max_sentence)
