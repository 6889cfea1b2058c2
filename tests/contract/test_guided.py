"""Grammars, beside other limits and alone, as their client sees them (contract 7.5)."""

import json
from typing import Any

import pytest

from engine.protocol import Engine
from engine.protocol.demo import MODEL_DIR
from engine.text.tokenizer import LocalTokenizer
from tests.contract.case import Case, everywhere, guard

CONSTANT = {"const": "qqqz"}
OPEN = {
    "type": "object",
    "properties": {
        "paid": {"type": "boolean"},
        "place": {"type": "object", "properties": {"floor": {"enum": [1, 2]}}, "required": ["floor"]},
    },
    "required": ["paid", "place"],
}
"""Says nothing of other properties, like the schemas of pydantic."""


def format_of(case: Case, schema: Any) -> tuple[dict[str, Any], str]:
    """The fields that ask for JSON of this schema, and the endpoint's name for the schema's field."""
    named = {"type": "json_schema", "name": "n", "schema": schema}
    match case.endpoint.name:
        case "responses":
            return {"text": {"format": named}}, "text.format.schema"
        case "messages":
            asked = {"format": {"type": "json_schema", "schema": schema}}
            return {"output_config": asked}, "output_config.format.schema"
    asked = {"type": "json_schema", "json_schema": named}
    return {"response_format": asked}, "response_format.json_schema.schema"


def id_of(text: str) -> int:
    (token_id,) = LocalTokenizer.load(str(MODEL_DIR)).encode(text, add_special_tokens=False)
    return token_id


@everywhere()
@pytest.mark.parametrize("guarded", [False, True])
async def test_limits_that_allow_no_first_token_are_a_400(
    case: Case, guarded: bool, demo: Engine
) -> None:  # contract 7.5
    fields, name = format_of(case, CONSTANT)
    hooks = [guard("Looks")] if guarded else []
    answer = await case.answer(demo, *hooks, tools=[], allowed_token_ids=[id_of("q")], **fields)
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (400, "invalid_request_error")
    both = f"{name} and allowed_token_ids"
    assert answer.error.message == f"{both} leave no token that may come next."
    if case.endpoint.can("error_code"):
        assert answer.error.param == "allowed_token_ids"
    assert "ERROR" not in [record.levelname for record in case.caplog.records]


@everywhere()
@pytest.mark.parametrize("guarded", [False, True])
async def test_limits_that_allow_no_later_token_fail_the_request_closed(
    case: Case, guarded: bool, demo: Engine
) -> None:
    """Contract 4.2, 7.5: the caller is at fault, and is told so by a status or one event."""
    fields, name = format_of(case, CONSTANT)
    hooks = [guard("Looks")] if guarded else []
    allowed = [id_of('"'), id_of("q")]
    answer = await case.answer(demo, *hooks, tools=[], allowed_token_ids=allowed, **fields)
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (200 if case.streams else 400, "invalid_request_error")
    assert answer.error.message.startswith(f"{name} and allowed_token_ids leave no token")
    assert answer.only.content == ('"qqq' if case.streams else "")
    assert answer.only.finish is None
    assert "ERROR" not in [record.levelname for record in case.caplog.records]


@everywhere()
async def test_objects_have_no_other_properties_than_their_schema_names(case: Case, demo: Engine) -> None:
    fields, _ = format_of(case, OPEN)
    client = await case.start(demo)
    for seed in range(4):
        sampled = {"max_tokens": 200, "temperature": 1.0, "seed": seed}
        answer = await case.ask(client, tools=[], **sampled, **fields)
        assert answer.only.finish == "stop"
        found = json.loads(answer.only.content)
        assert (list(found), list(found["place"])) == (["paid", "place"], ["floor"])
