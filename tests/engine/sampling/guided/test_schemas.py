"""The model that ships writes valid documents for two hundred schemas, at temperature 1."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, time
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from engine.local.engine import LocalEngine
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from tests.engine.conftest import Answer, answers
from tests.engine.sampling.guided.schemas import Schema, Schemas
from tests.helpers import draws

NUM_SCHEMAS = 200
NUM_ALONE = 20
"""Schemas that are requested once more, alone."""

CHECKER = FormatChecker(["email", "date", "ipv4", "ipv6", "uuid"])
for name, read in {"time": time.fromisoformat, "date-time": datetime.fromisoformat}.items():
    # RFC 3339 allows a small z, which Python does not read.
    CHECKER.checks(name, ValueError)(
        lambda value, read=read: not isinstance(value, str) or bool(read(value.upper()))
    )


@pytest.fixture
async def engine() -> AsyncIterator[LocalEngine]:
    settings: dict[str, Any] = {"num_threads": 1, "max_num_seqs": 32, "num_speculative_tokens": 3}
    engine = LocalEngine(EngineConfig(model=str(MODEL_DIR), **settings))
    await engine.start()
    yield engine
    await engine.aclose()


async def document(engine: LocalEngine, schema: Schema, seed: int) -> Answer:
    schema_format = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}}
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="chat",
        messages=({"role": "user", "content": "Where is my order 48213?"},),
        sampling=SamplingParams(temperature=1.0, seed=seed),
        extra={"response_format": schema_format},
    )
    (answer,) = answers([delta async for delta in engine.generate(request)])
    return answer


async def test_every_document_is_valid_and_the_same_as_alone(engine: LocalEngine) -> None:
    drawn = Schemas(seed=0)
    schemas = [drawn.draw() for _ in range(draws(NUM_SCHEMAS))]
    found = await asyncio.gather(*(document(engine, schema, i) for i, schema in enumerate(schemas)))
    for schema, answer in zip(schemas, found, strict=True):
        assert answer.finish_reason == "stop", schema
        Draft202012Validator(schema, format_checker=CHECKER).validate(json.loads(answer.text))
    for i in range(0, len(schemas), NUM_SCHEMAS // NUM_ALONE):
        alone = await document(engine, schemas[i], i)
        assert (alone.ids, alone.text) == (found[i].ids, found[i].text)
    # The documents differ from each other.
    assert len({answer.text for answer in found}) > len(schemas) // 2
