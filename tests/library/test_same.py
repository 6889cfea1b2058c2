"""The library releases what the proxy releases of the same deltas."""

import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
from benchmarks.leaks import by_the_library, run
from engine.protocol import Delta, GenerationRequest, SamplingParams
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.loading.given import load
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import vetted
from tests.helpers import ScriptedEngine, examples, make_token
from tests.proxy.conftest import CHAT, Serve
from tests.proxy.conftest import serve as serve

PHRASES = ["the weir", "zoe was", "heron", "password"]
GUARDS: list[list[Any]] = [
    [Phrases(PHRASES)],
    [Pii(), Secrets(), Phrases(PHRASES)],
    [Phrases(PHRASES, action="terminate", text="No more."), Pii(action="suppress")],
    [Secrets(), Phrases(PHRASES, alternatives="keep")],
]
OPENED = [weir.Guards(hooks) for hooks in GUARDS]
WORDS = [
    "the ",
    "weir",
    " heron",
    " zoe",
    " was",
    "zoe@millrace",
    ".initech",
    ".com",
    "password: ",
    "xK9#mQ2$vT7pLw",
    " ",
    ".",
]
CALLS = [weir.ToolCall(i, "send") for i in range(3)]
pieces = st.lists(
    st.tuples(
        st.sampled_from(["content", "content", "reasoning", "tool_call"]),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    ),
    max_size=12,
)
lasts = st.sampled_from(
    [
        Delta(finish_reason="stop"),
        Delta(finish_reason="length", is_cut=True),
        Delta(finish_reason="tool_calls"),
        Delta(finish_reason="stop", is_cut=True),
    ]
)


def deltas_of(drawn: Iterable[tuple[Any, list[str]]], last: Delta) -> list[Delta]:
    """A delta for each piece, with a token for each word; calls one after another."""
    deltas, num_calls, before = [], 0, None
    for i, (channel, words) in enumerate(drawn):
        num_calls += channel == "tool_call" and before != "tool_call"
        before = channel
        if num_calls > len(CALLS):
            break
        call = CALLS[num_calls - 1] if channel == "tool_call" else None
        tokens = () if call else tuple(make_token(word, 10 * i + j) for j, word in enumerate(words))
        deltas.append(Delta(text="".join(words), tokens=tokens, channel=channel, tool_call=call))
    return [*deltas, last]


@given(pieces, lasts, st.integers(0, len(GUARDS) - 1))
@examples(1000)
async def test_the_deltas_are_those_of_the_proxys_flow(drawn: Any, last: Delta, which: int) -> None:
    deltas = deltas_of(drawn, last)
    request = GenerationRequest(request_id="r", model="m", endpoint="chat")

    async def generate(_: Any) -> Any:
        for delta in deltas:
            yield delta

    flow = vetted(Pipeline(load(GUARDS[which])).open(request), generate)
    expected = [delta async for delta in flow]
    guards = OPENED[which]
    assert list(guards.open(request).deltas(deltas)) == expected

    async def later() -> AsyncIterator[Delta]:
        for delta in deltas:
            yield delta

    assert [delta async for delta in guards.open(request).deltas(later())] == expected
    content = "".join(delta.text for delta in expected if delta.channel == "content")
    assert "".join(guards.open(request).stream(deltas)) == content


async def test_the_text_is_that_of_a_server(serve: Serve) -> None:
    scripts: dict[str, list[Delta]] = {}
    client = await serve(ScriptedEngine(lambda request: scripts[request.messages[0]["content"]]), *GUARDS[1])
    rng = random.Random(1)
    for number in range(40):
        words = [rng.choice(WORDS) for _ in range(rng.randint(1, 30))]
        scripts[str(number)] = [Delta(text=word) for word in words] + [Delta(finish_reason="stop")]
        body = {**CHAT, "messages": [{"role": "user", "content": str(number)}]}
        events = await client.stream("/v1/chat/completions", body)
        assert events.content() == "".join(OPENED[1].stream(words)) == OPENED[1].text("".join(words)).text


def test_a_prompt_reaches_the_model_as_the_proxy_would_send_it() -> None:
    hooks = weir.HookSpec("phrases", {"phrases": PHRASES, "prompt": "redact"})
    messages = [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "the weir?"}]
    answer = weir.Guards(hooks).messages(messages)
    assert answer.messages == [messages[0], {"role": "user", "content": "[phrase]?"}]
    assert messages[1]["content"] == "the weir?"
    lead = [*messages, {"role": "assistant", "content": "It is the we"}]
    assert "".join(weir.Guards(hooks).messages(lead).stream(["ir", "."])) == "[phrase]."  # contract 2.8


@pytest.mark.parametrize("which", range(len(GUARDS)))
def test_several_outputs_end_each_by_itself(which: int) -> None:
    request = GenerationRequest(request_id="r", model="m", endpoint="chat", sampling=SamplingParams(n=2))
    source = [Delta(index=0, text="one"), Delta(index=1, text="two"), Delta(index=0, finish_reason="stop")]
    released = list(OPENED[which].open(request).deltas(source))
    assert [(one.index, one.finish_reason) for one in released if one.finish_reason] == [
        (0, "stop"),
        (1, "stop"),
    ]


async def test_nothing_of_a_forbidden_span_gets_out() -> None:
    """`make bench NAME=leaks` tries 100,000 streams."""
    await run(300, 2, by_the_library)
