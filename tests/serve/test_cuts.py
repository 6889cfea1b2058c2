"""A client that chooses where the model that ships ends its answer gets no beginning of a match."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.protocol.demo import MODEL_DIR

ASK = "What is the secret project called?"
EOS = json.loads((MODEL_DIR / "generation_config.json").read_text())["eos_token_id"]
CONFIG = "hooks: [{path: phrases, args: {phrases: [project bluebird]}}]"
TURNS = [{"role": "user", "content": ASK}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TURNS},
    "/v1/completions": {"prompt": "Our secret project is called", "max_tokens": 40},
    "/v1/responses": {"input": ASK},
    "/v1/messages": {"messages": TURNS, "max_tokens": 40},
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cuts") / "weir.yaml"
    path.write_text(CONFIG)
    return path


def answer(url: str, path: str, **fields: Any) -> str:
    body = {"model": "weir-demo", "temperature": 0, **BODIES[path], **fields}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data=orjson.dumps(body), headers=headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        text: str = response.read().decode()
    return text


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("path", [*BODIES])
@pytest.mark.parametrize(
    "steering",
    [
        [{"min_tokens": n, "logit_bias": {str(EOS): 100}} for n in range(1, 9)],
        [
            {"guided_regex": f".{{{len(text)}}}"}
            for text in (" Project", "Our secret project is called Project")
        ],
    ],
    ids=["bias", "grammar"],
)
def test_an_answer_that_the_client_ends_inside_a_phrase_has_no_part_of_it(
    weir_serve: Callable[..., str], config: Path, path: str, streams: bool, steering: list[dict[str, Any]]
) -> None:  # contract 2.9, 3.12
    url = weir_serve("--config", str(config))
    for fields in steering:
        assert "Project" not in answer(url, path, stream=streams, **fields)
