"""Limits of a request that leave the model no token, as its client sees them (contract 7.5)."""

from typing import Any

import pytest

from engine.backends.local import LocalEngine
from engine.demo import MODEL_DIR
from engine.text.tokenizer import LocalTokenizer
from tests.contract.case import Case, everywhere, guard

SCHEMA = {"const": "qqqz"}
NAMED = {"type": "json_schema", "name": "n", "schema": SCHEMA}
CHAT = {"response_format": {"type": "json_schema", "json_schema": NAMED}}
MESSAGE = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "chat": (CHAT, "response_format.json_schema"),
    "completions": (CHAT, "response_format.json_schema"),
    "responses": ({"text": {"format": NAMED}}, "text.format"),
    "messages": (MESSAGE, "output_config.format"),
}
"""By endpoint, a grammar for one text, and the endpoint's name for its field."""


def id_of(text: str) -> int:
    (token_id,) = LocalTokenizer.load(str(MODEL_DIR)).encode(text, add_special_tokens=False)
    return token_id


@everywhere()
@pytest.mark.parametrize("guarded", [False, True])
async def test_limits_that_allow_no_first_token_are_a_400(
    case: Case, guarded: bool, demo: LocalEngine
) -> None:  # contract 7.5
    fields, name = FORMATS[case.endpoint.name]
    hooks = [guard("Looks")] if guarded else []
    answer = await case.answer(demo, *hooks, tools=[], allowed_token_ids=[id_of("q")], **fields)
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (400, "invalid_request_error")
    both = f"{name}.schema and allowed_token_ids"
    assert answer.error.message == f"{both} leave no token that may come next."
    if case.endpoint.can("error_code"):
        assert answer.error.param == "allowed_token_ids"
    assert "ERROR" not in [record.levelname for record in case.caplog.records]


@everywhere()
@pytest.mark.parametrize("guarded", [False, True])
async def test_limits_that_allow_no_later_token_fail_the_request_closed(
    case: Case, guarded: bool, demo: LocalEngine
) -> None:
    """Contract 4.2, 7.5: the caller is at fault, and is told so by a status or one event."""
    fields, name = FORMATS[case.endpoint.name]
    hooks = [guard("Looks")] if guarded else []
    allowed = [id_of('"'), id_of("q")]
    answer = await case.answer(demo, *hooks, tools=[], allowed_token_ids=allowed, **fields)
    assert answer.error is not None
    assert (answer.status, answer.error.kind) == (200 if case.streams else 400, "invalid_request_error")
    assert answer.error.message.startswith(f"{name}.schema and allowed_token_ids leave no token")
    assert answer.only.content == ('"qqq' if case.streams else "")
    assert answer.only.finish is None
    assert "ERROR" not in [record.levelname for record in case.caplog.records]
