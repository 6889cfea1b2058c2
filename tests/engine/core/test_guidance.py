"""Requests wait for their grammars without blocking others, and bad grammars are refused."""

import asyncio
import re
import threading
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pytest

from engine.core.guidance import MAX_SIZE
from engine.protocol import EngineError, RequestError
from engine.sampling.guided.compiler import GrammarCompiler
from tests.engine.conftest import completion
from tests.helpers import until
from tests.processes import WAIT_LIMIT


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"guided_regex": "(a"}, "guided_regex"),
        ({"guided_regex": "a" * (MAX_SIZE + 1)}, "guided_regex"),
        ({"guided_json": {}, "guided_whitespace_pattern": "a" * MAX_SIZE}, "guided_json"),
        ({"guided_json": {"type": "poem"}}, "guided_json"),
        ({"structured_outputs": {"grammar": "root ::= missing"}}, "structured_outputs.grammar"),
        ({"guided_choice": ["a"], "use_beam_search": True}, "guided_choice"),
        ({"response_format": {"type": "json_object"}, "use_beam_search": True}, "response_format"),
    ],
)
async def test_a_grammar_that_cannot_be_followed_is_refused_by_its_field(
    extra: dict[str, Any], param: str, engine: Any
) -> None:
    with pytest.raises(RequestError) as caught:
        await engine.complete("the", extra=extra)
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)
    assert (engine.stats().num_running, engine.stats().num_waiting) == (0, 0)


CALLERS = ("one", "other")
"""Each of them has one compiler at a time."""


@dataclass
class SlowCompiler:
    """Begins to compile, and waits until the test lets it go on."""

    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go_on: threading.Event = field(default_factory=threading.Event)
    compiled: list[str] = field(default_factory=list)


@pytest.fixture
def slow_compiler(monkeypatch: pytest.MonkeyPatch) -> SlowCompiler:
    slow, make = SlowCompiler(), GrammarCompiler._make

    def make_slowly(self: GrammarCompiler, grammar: Any) -> Any:
        slow.begun.release()
        assert slow.go_on.wait(300)
        slow.compiled.append(grammar.text)
        return make(self, grammar)

    monkeypatch.setattr(GrammarCompiler, "_make", make_slowly)
    return slow


async def test_a_request_that_waits_for_its_grammar_blocks_no_other_and_may_leave(
    engine: Any, slow_compiler: SlowCompiler
) -> None:
    asked = [
        asyncio.get_running_loop().create_task(
            engine.complete((5, 6), max_tokens=9, extra={"guided_regex": f"[a-{letter}]+"}, caller=caller)
        )
        for letter, caller in zip("bcdefg", cycle(CALLERS))
    ]
    for _ in range(2):
        await asyncio.to_thread(slow_compiler.begun.acquire, timeout=WAIT_LIMIT)
    (free,) = await engine.complete((5, 6), max_tokens=30, ignore_eos=True)
    assert len(free.ids) == 30
    asked[1].cancel()
    asked[4].cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked[4]
    slow_compiler.go_on.set()
    found = [await one for i, one in enumerate(asked) if i not in (1, 4)]
    assert all(re.fullmatch("[a-g]+", answer.text) for (answer,) in found)
    assert "[a-f]+" not in slow_compiler.compiled, "its request had left"
    await until(lambda: engine.stats().num_running == 0)
    assert not engine._admission._outputs


async def test_a_request_that_waits_for_its_grammar_fails_when_the_engine_closes(
    engine: Any, slow_compiler: SlowCompiler
) -> None:
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(failure(engine, f"[a-{letter}]+", caller))
            for letter, caller in zip("bcde", cycle(CALLERS))
        ]
        for _ in range(2):
            await asyncio.to_thread(slow_compiler.begun.acquire, timeout=WAIT_LIMIT)
        await engine.aclose()
        slow_compiler.go_on.set()
    assert [one.result() for one in asked] == [503] * 4


async def failure(engine: Any, regex: str, caller: str) -> int:
    with pytest.raises(EngineError) as caught:
        await engine.complete((5, 6), extra={"guided_regex": regex}, caller=caller)
    return caught.value.status


async def test_a_client_that_leaves_a_guided_stream_frees_everything(engine: Any) -> None:
    request = completion((5, 6), max_tokens=300, extra={"guided_regex": "[a-z ]+"}, ignore_eos=True)
    async with aclosing(engine.generate(request)) as deltas:
        async for _ in deltas:
            break
    await until(lambda: engine.stats().num_running == 0)
    assert engine.stats().kv_blocks_used == 0
