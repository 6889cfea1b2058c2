"""Names, places and other entities that Presidio's recognisers find in a sentence: `--hook presidio`.

The guard holds and judges each sentence alone. Judging takes milliseconds: use `--hook-workers`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from hooks import checked
from hooks.api.extras import from_extra
from hooks.detect.argument_types import Count, Names, Share
from hooks.detect.detector import Findings, Match
from hooks.detect.span_guard import SpanGuard, SpanOptions
from hooks.detect.windows import Sentences

with from_extra("presidio", "presidio-analyzer"):
    from presidio_analyzer import AnalyzerEngineProvider


class Presidio(SpanGuard):
    """Finds names, places and other entities that Presidio's recognisers find in whole sentences."""

    @checked
    def __init__(
        self,
        *,
        entities: Names = ("PERSON", "LOCATION", "NRP"),
        language: str = "en",
        score: Share = 0.5,
        max_sentence: Count = 400,
        configuration: str | Path | None = None,
        **options: Unpack[SpanOptions],
    ) -> None:
        """`entities`: the kinds to find; `pii` does not find the default ones. `score`: the least score that
        counts. `max_sentence`: most characters of a sentence. `configuration`: Presidio's file for its
        analyzer, with models and recognisers (default: Presidio's own, for English).
        """
        configuration = None if configuration is None else Path(configuration).expanduser()
        if configuration is not None and not configuration.is_file():  # Presidio ignores a missing file
            raise ValueError(f"configuration: file {configuration} not found")
        analyzer = AnalyzerEngineProvider(analyzer_engine_conf_file=configuration).create_engine()
        wanted = list(entities)
        if unknown := set(wanted) - set(analyzer.get_supported_entities(language)):
            raise ValueError(f"Presidio has no recogniser for {', '.join(sorted(unknown))} in {language!r}")
        options.setdefault("at_cut", "release")
        super().__init__(SentenceDetector(analyzer, wanted, language, score, max_sentence), **options)


class SentenceDetector:
    """Finds what an analyzer finds in each sentence. A scan always starts at the beginning of a sentence."""

    reach = 0

    def __init__(
        self, analyzer: Any, entities: list[str], language: str, score: float, max_sentence: int
    ) -> None:
        self._analyzer = analyzer
        self._arguments = {"entities": entities, "language": language, "score_threshold": score}
        self._sentences = Sentences(max_sentence)
        self.longest = max_sentence

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        matches: list[Match] = []
        while start < len(text) and (end := self._sentences.end(text, start, is_final)) is not None:
            results = self._analyzer.analyze(text[start:end], **self._arguments)
            matches += [Match(start + r.start, start + r.end, r.entity_type) for r in results]
            start = end
        return matches, start
