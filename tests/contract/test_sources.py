"""Who said each text of a prompt, as hooks behind each endpoint see it (contract 8.6)."""

import random
from typing import Any

import pytest

from benchmarks.leaks_sources import check, draw, read
from hooks.loading.loader import HookSpec
from tests.contract.case import Case, end, engine_of, everywhere, guard, said, well
from tests.contract.wire import ENDPOINTS
from tests.helpers import ScriptedEngine

PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
STRANGER = "the stranger says 8801217477"
TURNS: dict[str, list[Any]] = {
    "chat": [
        {"type": "document", "text": STRANGER},
        {"type": "file", "file": {"filename": STRANGER, "file_data": "data:,"}},
        {"type": "widget", "text": STRANGER},
    ],
    "responses": [{"type": "input_file", "filename": STRANGER, "file_data": "data:,"}],
    "messages": [
        {"type": "document", "source": {"type": "text", "data": STRANGER}},
        {"type": "document", "source": PDF, "title": STRANGER},
        {"type": "search_result", "source": "a", "title": STRANGER, "content": []},
    ],
}
_FIELD = {"chat": "messages", "responses": "input", "messages": "messages"}
TEXT = {"chat": "text", "responses": "input_text", "messages": "text"}


@everywhere()
async def test_each_text_has_the_source_that_was_drawn(case: Case) -> None:  # contract 8.6
    client = await case.start(ScriptedEngine(lambda request: well("content")), guard("Recalls"))
    (recalls,) = case.hooks
    rng = random.Random(case.endpoint.name)
    for _ in range(10):
        drawn = draw(rng, case.endpoint.name)
        recalls.request = None
        ask = client.stream if case.streams else client.post
        await ask(case.endpoint.path, {"model": "m", **drawn.body})
        if read(case.endpoint.name, drawn.body) is not None:
            assert recalls.request is not None, drawn.body
            check(rng, recalls.request, drawn)


CALL = {"tools": ["f"]}
POLICIES: dict[str, list[Any]] = {
    "from": [{**CALL, "when": {"/a": {"from": ["user"]}}}],
    "tainted": [{**CALL, "effect": "deny_if_tainted"}, CALL],
}


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ((one, streams), part)
        for one in ENDPOINTS
        for part in TURNS.get(one.name, ())
        for streams in (False, True)
    ],
    indirect=["case"],
)
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_strangers_part_is_not_the_users_word(case: Case, part: Any, policy: str) -> None:
    """Contract 8.6, 8.15."""
    script = [*said("tool_call", "8801217477"), end("tool_calls")]
    hooks = HookSpec("tools", {"rules": POLICIES[policy]}), HookSpec("wrap", {})
    own = {"type": TEXT[case.endpoint.name], "text": "Hello."}
    for parts, passes in (([own, part], False), ([{**own, "text": "It is 8801217477."}], True)):
        client = await case.start(engine_of(script), *hooks)
        asked = {**case.body(), _FIELD[case.endpoint.name]: [{"role": "user", "content": parts}]}
        ask = client.stream if case.streams else client.post
        assert ("8801217477" in str(await ask(case.endpoint.path, asked))) is passes
