"""The sampling that a model recommends, and which requests get it."""

import dataclasses
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.core.input_processor import InputProcessor
from engine.protocol import GenerationRequest, SamplingParams
from engine.sources.sampling_defaults import sampling_defaults_of
from tests.engine.gguf_files import write_gguf

RECOMMENDED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05}


def folder(path: Path, **fields: Any) -> str:
    (path / "config.json").write_text("{}")
    (path / "generation_config.json").write_text(json.dumps(fields))
    return str(path)


def test_a_folder_recommends_by_its_generation_config(tmp_path: Path) -> None:
    model = folder(tmp_path, eos_token_id=7, do_sample=True, max_new_tokens=5, **RECOMMENDED)
    assert sampling_defaults_of(model) == RECOMMENDED


def test_a_gguf_file_recommends_by_its_metadata(tmp_path: Path) -> None:
    keys = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "penalty_repeat": 1.05}
    path = tmp_path / "m.gguf"
    write_gguf(path, "llama", metadata={f"general.sampling.{key}": value for key, value in keys.items()})
    assert sampling_defaults_of(str(path)) == pytest.approx(RECOMMENDED)


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_a_model_may_recommend_nothing(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "config.json").write_text("{}")
    if text is not None:
        (tmp_path / "generation_config.json").write_text(text)
    assert sampling_defaults_of(str(tmp_path)) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 3.0), ("temperature", "hot"), ("top_p", 0), ("top_k", -1), ("min_p", True)],
)
def test_what_no_request_may_have_is_left_out(
    tmp_path: Path, name: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert (
            sampling_defaults_of(folder(tmp_path, **{"top_k": 5, "top_p": 0.5, name: value})).get(name)
            is None
        )
    assert f"a {name} that is out of range" in caplog.text


@pytest.fixture
def processor(tiny_core: Callable[..., Any]) -> InputProcessor:
    found: InputProcessor = tiny_core(max_model_len=100).processor
    return dataclasses.replace(found, sampling_defaults=RECOMMENDED)


def sampling_of(processor: InputProcessor, request: GenerationRequest) -> SamplingParams:
    params: SamplingParams = processor.process(request).sequences[0].sampling.params
    return params


def test_a_request_gets_what_it_leaves_open(
    processor: InputProcessor, completion_request: Callable[..., GenerationRequest]
) -> None:
    request = dataclasses.replace(
        completion_request([5, 6], temperature=1.0), given=frozenset({"prompt", "temperature"})
    )
    found = sampling_of(processor, request)
    assert found.temperature == 1.0
    assert (found.top_k, found.top_p, found.min_p, found.repetition_penalty) == (20, 0.95, 0.05, 1.05)


def test_a_question_of_a_guard_means_what_it_says(
    processor: InputProcessor, completion_request: Callable[..., GenerationRequest]
) -> None:
    request = completion_request([5, 6], temperature=0.0)
    assert not request.given
    found = sampling_of(processor, request)
    assert (found.temperature, found.top_k, found.repetition_penalty) == (0.0, 0, 1.0)


def test_a_deployment_may_take_the_defaults_of_the_api(tiny_core: Callable[..., Any]) -> None:
    core = tiny_core(generation_config="none")
    assert core.processor.sampling_defaults == {}
