"""Logits processors through `weir serve` and the official SDK, on the model that ships."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.serving import serving
from tests.weir import run_weir

ASK: Any = [{"role": "user", "content": "Where is my order 48213?"}]
CONFIG = """
logits_processors:
  - {name: no_digits, path: examples/no_digits.py:NoDigits}
  - name: watermark
    args: {key: hush, delta: 5.0}
  - name: bad_words
    mandatory: true
    params: {bad_words: [Bluebird]}
"""


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("processors") / "weir.yaml"
    path.write_text(CONFIG)
    return ["--config", str(path)]


@pytest.mark.parametrize(
    "body",
    [
        {"logits_processors": [{"name": "no_digits"}]},
        {"vllm_xargs": {"no_digits": {}}},
        {"custom_params": {"no_digits": {}, "watermark": {}}},
    ],
)
def test_a_request_names_the_processors_that_it_wants(
    body: dict[str, object], options: list[str], weir_serve: Callable[..., str]
) -> None:  # contract 7.3
    with client_of(weir_serve(*options)) as client:
        ask = {"model": "weir-demo", "messages": ASK, "temperature": 0}
        free = client.chat.completions.create(**ask).choices[0].message.content or ""
        kept = client.chat.completions.create(**ask, extra_body=body).choices[0].message.content or ""
        streamed = [
            chunk.choices[0].delta.content or ""
            for chunk in client.chat.completions.create(**ask, extra_body=body, stream=True)
            if chunk.choices
        ]
        response = client.responses.create(
            model="weir-demo", input="Where is my order 48213?", temperature=0, extra_body=body
        )
    assert any(map(str.isdigit, free))
    assert kept
    assert not any(map(str.isdigit, kept))
    assert "".join(streamed) == kept == response.output_text


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (
            {"logits_processors": [{"name": "bad_words", "params": {"bad_words": []}}]},
            "logits_processors[0].name",
        ),
        (
            {"logits_processors": [{"name": "no_digits", "params": {"base": 8}}]},
            "logits_processors[0].params.base",
        ),
        ({"logits_processors": [{"name": "os.system"}]}, "logits_processors[0].name"),
        ({"logits_processors": [{"params": {}}]}, "logits_processors.0.name"),
        ({"logits_processors": ["no_digits"]}, "logits_processors"),
        ({"vllm_xargs": {"speed": 3}}, "vllm_xargs"),
        ({"custom_logit_processor": "8004952a"}, "custom_logit_processor"),
    ],
)
def test_what_a_request_may_not_have_is_a_400_with_the_field(
    body: dict[str, object], param: str, options: list[str], weir_serve: Callable[..., str]
) -> None:  # contract 7.3
    with client_of(weir_serve(*options)) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="weir-demo", messages=ASK, extra_body=body)
        assert caught.value.param == param


def test_a_mandatory_processor_is_every_request_s(options: list[str], weir_serve: Callable[..., str]) -> None:
    ask = {"model": "weir-demo", "temperature": 0, "logprobs": True}
    ask["messages"] = [{"role": "user", "content": "What is the secret project called?"}]
    said = []
    for url in (weir_serve(), weir_serve(*options)):
        with client_of(url) as client:
            said.append(client.chat.completions.create(**ask).choices[0].message.content or "")
    assert "Bluebird" in said[0]
    assert said[1]
    assert "Bluebird" not in said[1]


def test_a_watermark_is_detected_in_the_text(
    options: list[str], weir_serve: Callable[..., str], tmp_path: Path
) -> None:
    path, scores = tmp_path / "text", []
    with client_of(weir_serve(*options)) as client:
        for body in ({"logits_processors": [{"name": "watermark"}]}, {}):
            answer = client.chat.completions.create(
                model="weir-demo",
                messages=ASK,
                n=8,
                max_tokens=60,
                seed=4,
                extra_body={**body, "ignore_eos": True},
            )
            path.write_text("\n".join(choice.message.content or "" for choice in answer.choices))
            for file, given in ((path, ""), ("-", path.read_text())):
                found = run_weir("watermark", "detect", file, "--key", "hush", given=given)
                lines = dict(
                    line.split(maxsplit=1) for line in found.stdout.splitlines() if "scored" not in line
                )
                scores.append((float(lines["z-score"]), float(lines["p-value"])))
    assert scores[0] == scores[1]
    assert scores[2] == scores[3]
    assert scores[0][0] > 6 > 4 > scores[2][0]
    assert scores[0][1] < 1e-8 < scores[2][1]


def test_the_environment_makes_every_answer_hello_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_ENABLE_TEST_LOGITS_PROCESSOR", "1")
    with serving() as url, client_of(url) as client, ThreadPoolExecutor(8) as pool:

        def ask(i: int) -> list[str | None]:
            answer = client.chat.completions.create(
                model="weir-demo", messages=[{"role": "user", "content": f"Hello {i}"}], n=1 + i % 3
            )
            return [choice.message.content for choice in answer.choices]

        found = [text for texts in pool.map(ask, range(24)) for text in texts]
    assert found == ["Hello world!"] * 48
