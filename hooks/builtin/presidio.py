"""Names, places and other entities that Presidio's recognisers find in a sentence: `--hook presidio`.

The guard holds and judges each sentence alone. Judging takes milliseconds: use `--hook-workers`.
"""

from pathlib import Path
from typing import Unpack

from hooks import checked
from hooks.api.extras import from_extra
from hooks.detect.argument_types import Count, Names, Share
from hooks.detect.detector import Match
from hooks.detect.sentence_detector import SentenceDetector
from hooks.detect.span_guard import SpanGuard, SpanOptions

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

        def find(sentence: str) -> list[Match]:
            results = analyzer.analyze(sentence, entities=wanted, language=language, score_threshold=score)
            return [Match(one.start, one.end, one.entity_type) for one in results]

        super().__init__(SentenceDetector(find, max_sentence), **options)
