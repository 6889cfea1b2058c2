"""The test processor makes every answer "Hello world!"."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.local.engine import LocalEngine
from engine.protocol import GenerationRequest
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from tests.engine.conftest import answers


async def test_with_the_test_processor_every_answer_is_hello_world(start_engine: Any) -> None:
    engine = await start_engine(enable_test_logits_processor=True)
    asked: list[Any] = [
        engine.complete("the quick", (5, 6, 7), n=3, temperature=1.3),
        engine.chat("hello", n=2, logit_bias={50: 100.0}),
        *(engine.complete((i, 9), seed=i, temperature=1.0) for i in range(10, 50)),
    ]
    found = [answer for answered in await asyncio.gather(*asked) for answer in answered]
    assert len(found) == 48
    assert {(answer.text, answer.finish_reason) for answer in found} == {("Hello world!", "stop")}


async def test_the_model_that_ships_says_hello_world() -> None:
    engine = LocalEngine(EngineConfig(model=str(MODEL_DIR), num_threads=1, enable_test_logits_processor=True))
    await engine.start()
    try:
        request = GenerationRequest(
            request_id="r", model="m", endpoint="chat", messages=({"role": "user", "content": "Hello!"},)
        )
        (answer,) = answers([delta async for delta in engine.generate(request)])
    finally:
        await engine.aclose()
    assert (answer.text, answer.finish_reason) == ("Hello world!", "stop")


async def test_the_test_processor_refuses_a_model_without_an_end_of_sequence(
    tiny_model: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "endless"
    shutil.copytree(tiny_model("llama").path, path)
    (path / "generation_config.json").unlink()
    for name, field in (("config.json", "eos_token_id"), ("tokenizer_config.json", "eos_token")):
        fields = json.loads((path / name).read_text())
        del fields[field]
        (path / name).write_text(json.dumps({**fields, field: None}))
    engine = LocalEngine(EngineConfig(model=str(path), num_threads=1, enable_test_logits_processor=True))
    with pytest.raises(ValueError, match="needs an end-of-sequence token"):
        await engine.start()
    await engine.aclose()
