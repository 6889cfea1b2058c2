"""The items of a response: each kind's events, in order, and the item as it grows."""

import pytest

from engine.protocol import Delta, ToolCall
from proxy.wire.openai.response_items import FunctionCall, Message, OutputItem, Reasoning, item_for
from proxy.wire.openai.response_tools import Callee, Toolbox

CALL = Delta(channel="tool_call", tool_call=ToolCall(0, "send"))


@pytest.mark.parametrize(
    ("delta", "kind"),
    [(Delta(text="a"), Message), (Delta(text="a", channel="reasoning"), Reasoning), (CALL, FunctionCall)],
)
def test_an_item_is_of_its_deltas_kind(delta: Delta, kind: type[OutputItem]) -> None:
    item = item_for(delta, 3, Toolbox())
    assert type(item) is kind
    assert item.output_index == 3
    assert item.id.startswith(f"{kind.prefix}_")


def test_a_message_opens_and_closes_its_part_around_its_text() -> None:
    item = Message(0)
    logprobs = [{"token": "Hi", "logprob": -1.0}]
    events = [*item.begin(), *item.add("Hi", logprobs), *item.add("!", []), *item.end("completed")]
    assert [kind for kind, _ in events] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert events[0][1]["item"]["content"] == []
    assert events[2][1] == {
        "item_id": item.id,
        "output_index": 0,
        "content_index": 0,
        "delta": "Hi",
        "logprobs": logprobs,
    }
    assert (events[4][1]["text"], events[4][1]["logprobs"]) == ("Hi!", logprobs)
    assert events[-1][1]["item"]["status"] == "completed"
    assert events[-1][1]["item"]["content"] == [item.part()]


def test_a_call_has_its_name_and_arguments_in_its_last_events() -> None:
    item = FunctionCall(1, Callee("function", "send"))
    events = [*item.begin(), *item.add('{"a"', []), *item.add(":1}", []), *item.end("completed")]
    assert [kind.removeprefix("response.") for kind, _ in events] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    done = events[3][1]
    assert (done["name"], done["arguments"], done["item_id"]) == ("send", '{"a":1}', item.id)
    assert events[-1][1]["item"]["call_id"] == item.call_id != item.id


@pytest.mark.parametrize("item", [Message(0), Reasoning(0), FunctionCall(0, Callee("function", "f"))])
def test_an_item_without_text_gets_an_empty_delta(item: OutputItem) -> None:
    item.begin()
    (kind, fields), *_, (_, last) = item.end("incomplete")
    assert (kind, fields["delta"]) == (f"{item.kind}.delta", "")
    assert last["item"]["status"] == "incomplete"
