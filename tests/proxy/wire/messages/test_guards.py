"""Hooks over the Messages API: nothing forbidden on any channel, and a chat to look at."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leaks_messages
from engine.protocol import Delta
from hooks import Chunk, Verdict, emit
from tests.helpers import Script, ScriptedEngine, examples, make_deltas
from tests.proxy.conftest import Serve
from tests.proxy.wire.messages.conftest import ASK, PATH


@examples(20)
@given(seed=st.integers(0, 2**32))
async def test_nothing_of_a_forbidden_span_gets_out(seed: int) -> None:
    await leaks_messages.run(5, seed)


async def test_nothing_of_a_forbidden_span_gets_to_the_operator_s_tools() -> None:
    """Spans, metrics that are sent, JSON log lines, the access log and decisions (contract 6.2)."""
    counts = await leaks_messages.run(40, 3, has_tools=True)
    assert counts["spans"] > 80
    assert counts["decisions"] > 20


async def test_a_hook_sees_the_conversation_as_a_chat(serve: Serve) -> None:
    """Contract 8.1: the same prompt as on the other endpoints."""
    seen: list[Any] = []

    def look(chunk: Chunk) -> Verdict:
        seen.append((chunk.request.endpoint, [m["role"] for m in chunk.request.messages], chunk.request.user))
        return emit(chunk.pending)

    engine = ScriptedEngine(lambda r: [*make_deltas(["Hi"], finish=False), Delta(finish_reason="stop")])
    client = await serve(engine, Script(look))
    await client.post(PATH, {**ASK, "system": "Be brief.", "metadata": {"user_id": "u"}})
    assert seen[-1] == ("messages", ["system", "user"], "u")
