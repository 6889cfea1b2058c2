"""Events that are assembled from parts equal plain JSON."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Channel, Delta, ToolCall, Usage
from proxy.wire.openai.answer import ChoicesAnswer
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from proxy.wire.openai.completions import CompletionAnswer, CompletionRequest
from tests.helpers import make_token

TEXTS = st.one_of(
    st.sampled_from(["text", '"text"', "", '"', "\\", "\u2028", "\0", "]}\n\n", "data: x"]),
    st.text(st.characters(codec="utf-8"), max_size=5),
)
EXTRAS: list[dict[str, Any]] = [
    {},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    {"return_token_ids": True},
]


@st.composite
def deltas(draw: st.DrawFn, channels: list[Channel]) -> list[Delta]:
    """The interleaved streams of two outputs, each with an end."""
    drawn = []
    for i in range(draw(st.integers(0, 12))):
        text, channel = draw(TEXTS), draw(st.sampled_from(channels))
        call = ToolCall(draw(st.integers(0, 2)), "f") if channel == "tool_call" else None
        tokens = draw(st.sampled_from([(), (make_token(text, i),)]))
        usage = draw(st.sampled_from([None, Usage(3, i)]))
        index = draw(st.integers(0, 1))
        drawn.append(
            Delta(index=index, text=text, tokens=tokens, channel=channel, tool_call=call, usage=usage)
        )
    ends = [Delta(index=i, text=draw(TEXTS), finish_reason="stop", stop_reason="text") for i in (0, 1)]
    return [*drawn, *ends]


def check(make: Any, items: list[Delta]) -> None:
    answer: ChoicesAnswer = make()
    plain: ChoicesAnswer = make()
    head = {"id": "r", "object": plain.chunk_object, "model": '"text"'}
    for item in items:
        *begun, event = (one + b"\n\n" for one in answer.chunk(item).split(b"\n\n")[:-1])
        for index, first in enumerate(begun):  # a chat of several outputs begins with a chunk for each
            assert orjson.loads(first[6:])["choices"] == [plain.chunk_choice(Delta(index=index))]
        plain._taken(item)
        choice = plain.chunk_choice(item)
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        assert event.count(b"\n") == 2
        sent = orjson.loads(event[6:])
        del sent["created"]
        expected: dict[str, Any] = {**head, "choices": [without_ids(choice)]}
        options = plain.fields.stream_options
        if options is not None:
            expected["usage"] = plain.usage() if options.continuous_usage_stats else None
        assert without_ids(sent) == expected
        assert list(sent["choices"][0]) == list(choice), "the fields' order"


def without_ids(value: Any) -> Any:
    """`value` without the random ids of tool calls."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if not (k == "id" and str(v).startswith("call"))}
    return [without_ids(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("extra", [*EXTRAS, {"logprobs": True, "top_logprobs": 1}], ids=str)
@given(data=st.data())
def test_the_events_of_a_chat_are_plain_json(extra: dict[str, Any], data: st.DataObject) -> None:
    fields = ChatRequest(messages=[{"role": "user", "content": "Hi"}], stream=True, n=2, **extra)
    request = fields.to_request("r", '"text"')
    check(lambda: ChatAnswer(fields, request), data.draw(deltas(["content", "reasoning", "tool_call"])))


@pytest.mark.parametrize("extra", [*EXTRAS, {"logprobs": 1}, {"detokenize": False}], ids=str)
@given(data=st.data())
def test_the_events_of_a_completion_are_plain_json(extra: dict[str, Any], data: st.DataObject) -> None:
    fields = CompletionRequest(prompt="Hi", stream=True, n=2, **extra)
    request = fields.to_request("r", '"text"')
    check(lambda: CompletionAnswer(fields, request), data.draw(deltas(["content", "echo"])))


def test_a_stream_builds_no_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of thousands of outputs costs little until there are some."""
    built: list[CompletionAnswer] = []
    empty = CompletionAnswer.empty_content
    monkeypatch.setattr(CompletionAnswer, "empty_content", lambda self: (built.append(self), empty(self))[1])
    fields = CompletionRequest(prompt=["Hi"] * 32, stream=True, n=128)
    answer = CompletionAnswer(fields, fields.to_request("r", "m"))
    assert b'"a"' in answer.chunk(Delta(index=4095, text="a"))
    answer.end()
    assert not built
    answer.fold(Delta(index=4095, text="b"))
    choices = orjson.loads(answer.whole())["choices"]
    assert [c["index"] for c in choices] == list(range(4096))
    assert (choices[0]["text"], choices[4095]["text"]) == ("", "b")
