"""What Presidio's recognizers of patterns find: texts in, spans out. Run by its own environment's Python.

No model of a language is loaded: the recognizers of names, places and dates find nothing. Words are told
apart by spaCy's rules for English, and each word is its own lemma, so that words near a value count. With the
argument `all`, the recognizers that are off by default find, too.
"""

import inspect
import json
import sys
import time

import spacy
from presidio_analyzer import AnalyzerEngine, PatternRecognizer, RecognizerRegistry, predefined_recognizers
from presidio_analyzer.nlp_engine import SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import PhoneRecognizer
from spacy.language import Language
from spacy.tokens import Doc

_LEFT_OUT = ("URL", "DATE_TIME")
"""Entities that are no personal data alone."""


@Language.component("lower_lemmas")
def lower_lemmas(doc: Doc) -> Doc:
    for token in doc:
        token.lemma_ = token.lower_
    return doc


class BlankEngine(SpacyNlpEngine):
    """spaCy's English without a model."""

    def __init__(self) -> None:
        super().__init__(models=[{"lang_code": "en", "model_name": "blank"}])

    def load(self) -> None:
        language = spacy.blank("en")
        language.add_pipe("lower_lemmas")
        language.max_length = 10_000_000
        self.nlp = {"en": language}


def registry(has_all: bool) -> RecognizerRegistry:
    made = RecognizerRegistry(supported_languages=["en"])
    made.load_predefined_recognizers(languages=["en"])
    known = {type(recognizer) for recognizer in made.recognizers}
    for _, kind in inspect.getmembers(predefined_recognizers, inspect.isclass):
        is_pattern = issubclass(kind, (PatternRecognizer, PhoneRecognizer)) and kind is not PatternRecognizer
        if has_all and is_pattern and kind not in known:
            made.add_recognizer(kind(supported_language="en"))
    return made


def main() -> None:
    texts = json.load(sys.stdin)
    engine = BlankEngine()
    engine.load()
    analyzer = AnalyzerEngine(
        registry=registry("all" in sys.argv), nlp_engine=engine, supported_languages=["en"]
    )
    began = time.process_time()
    spans = [
        [
            (result.start, result.end, result.entity_type)
            for result in analyzer.analyze(text, "en")
            if result.entity_type not in _LEFT_OUT
        ]
        for text in texts
    ]
    json.dump({"seconds": time.process_time() - began, "spans": spans}, sys.stdout)


main()
