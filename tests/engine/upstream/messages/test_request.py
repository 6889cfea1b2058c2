"""A chat as the Messages API takes it; what the API cannot express is refused by its name."""

import hashlib
from typing import Any

import orjson
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from engine.protocol import GenerationRequest, RequestError, SamplingParams
from engine.protocol.fields.asked import check_fields
from engine.upstream.messages.fields import FIELDS
from engine.upstream.messages.options import MessagesOptions
from engine.upstream.messages.request import count_body, request_body
from engine.upstream.messages.signatures import Signatures
from tests.engine.upstream.openai.asked import HI, chat, completion

BODY: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
TEXT = {"type": "text", "text": "Hi"}
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
TOOLS = ({"type": "function", "function": FUNCTION}, {"type": "function", "function": {"name": "g"}})


def body_of(request: GenerationRequest, signatures: Signatures | None = None) -> dict[str, Any]:
    check_fields(request, FIELDS)
    body = request_body(request, MessagesOptions(), signatures=signatures)
    BODY.validate_python(body)
    return body


def turns_of(*messages: dict[str, Any], signatures: Signatures | None = None, **extra: Any) -> Any:
    return body_of(chat(messages=messages, extra=extra), signatures)["messages"]


def call(call_id: str, name: str, arguments: str | None) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_plain_chat_has_little() -> None:
    assert body_of(chat()) == {
        "model": "m",
        "stream": True,
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [TEXT]}],
    }


def test_the_upstream_decides_what_no_tokens_mean() -> None:
    assert body_of(chat(sampling=SamplingParams(max_tokens=0)))["max_tokens"] == 0


def test_the_upstream_may_call_the_model_otherwise() -> None:
    assert request_body(chat(), MessagesOptions(), "theirs")["model"] == "theirs"


def test_system_messages_in_front_are_the_system_prompt() -> None:
    messages = (
        {"role": "system", "content": "One"},
        {"role": "developer", "content": [{"type": "text", "text": "Two"}]},
        *HI,
        {"role": "developer", "content": "Three"},
    )
    body = body_of(chat(messages=messages))
    assert [block["text"] for block in body["system"]] == ["One", "Two"]
    assert [turn["role"] for turn in body["messages"]] == ["user", "system"]


def test_results_of_tools_are_one_turn_with_the_words_after_them() -> None:
    turns = turns_of(
        *HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("t1", "f", '{"a": 1}'), call("t2", "g", "")],
        },
        {"role": "tool", "tool_call_id": "t1", "name": "f", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": "Go on"},
        {"role": "user", "content": "please"},
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert orjson.loads(orjson.dumps(turns[1]["content"])) == [
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
    ]
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}]},
        {"type": "text", "text": "Go on"},
        {"type": "text", "text": "please"},
    ]


@pytest.mark.parametrize(
    "arguments", ['{"id": 123456789012345678901234567890}', '{"a": ' + "[" * 500 + "]" * 500 + "}"]
)
def test_arguments_go_on_as_they_are(arguments: str) -> None:
    turns = turns_of(
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [call("t1", "f", arguments)]},
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
    )
    assert arguments in orjson.dumps(turns).decode()


def test_ids_that_the_api_does_not_allow_still_agree() -> None:
    odd = "functions.f:0/ü"
    turns = turns_of(
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [call(odd, "f", "{}")]},
        {"role": "tool", "tool_call_id": odd, "content": "one"},
    )
    use, result = turns[1]["content"][0]["id"], turns[2]["content"][0]["tool_use_id"]
    assert use == result
    assert use.isascii()
    assert use.replace("_", "").isalnum()


def test_images_and_files_have_sources() -> None:
    pdf = {"file_data": "data:application/pdf;base64,BBBB", "filename": "a.pdf"}
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        {"type": "file", "file": pdf},
        {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": ""},
    ]
    data = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    file = {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}
    assert turns_of({"role": "user", "content": parts})[0]["content"] == [
        {"type": "image", "source": data},
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        {"type": "document", "source": file, "title": "a.pdf"},
        {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
    ]


def test_marks_for_the_cache_stand_where_the_chat_has_them() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    messages = (
        {"role": "system", "content": [{**TEXT, "cache_control": mark}, TEXT]},
        {"role": "user", "content": "Hi", "cache_control": mark},
        {"role": "assistant", "content": "", "tool_calls": [call("t1", "f", "{}")]},
        {"role": "tool", "tool_call_id": "t1", "content": "one", "cache_control": mark},
    )
    tools = (
        {"type": "function", "function": {"name": "f", "cache_control": mark}},
        {"type": "function", "function": {"name": "g"}, "cache_control": mark},
    )
    body = body_of(chat(messages=messages, tools=tools))
    assert [block.get("cache_control") for block in body["system"]] == [mark, None]
    assert [turn["content"][-1].get("cache_control") for turn in body["messages"]] == [mark, None, mark]
    assert [tool["cache_control"] for tool in body["tools"]] == [mark, mark]


def test_reasoning_goes_back_only_with_its_signature() -> None:
    signatures = Signatures()
    signatures.add(hashlib.sha256(b"Let me see.").digest(), "sign")
    for reasoning, num_blocks in (("Let me see.", 2), ("Let me *** see.", 1), (None, 1)):
        said = {"role": "assistant", "content": "a", "reasoning_content": reasoning}
        content = turns_of(*HI, said, *HI, signatures=signatures)[1]["content"]
        assert len(content) == num_blocks
        assert (content[0]["type"] == "thinking") == (num_blocks == 2)


def test_an_answer_goes_on_from_the_assistants_last_message_if_it_is_to() -> None:
    said = {"role": "assistant", "content": "Once"}
    turns = turns_of(*HI, said, continue_final_message=True, add_generation_prompt=False)
    assert turns[-1] == {"role": "assistant", "content": [{"type": "text", "text": "Once"}]}
    cases: tuple[tuple[Any, dict[str, Any]], ...] = (
        ((*HI, said), {}),
        (HI, {"continue_final_message": True}),
        ((), {}),
    )
    for messages, extra in cases:
        with pytest.raises(RequestError) as error:
            turns_of(*messages, **extra)
        assert error.value.param == "messages"


def test_an_answer_that_goes_on_from_nothing_is_a_new_one() -> None:
    empty = {"role": "assistant", "content": ""}
    assert turns_of(*HI, empty, continue_final_message=True, add_generation_prompt=False) == turns_of(*HI)


@pytest.mark.parametrize(
    ("choice", "parallel", "written"),
    [
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("auto", True, {"type": "auto"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("none", False, {"type": "none"}),
        ({"type": "function", "function": {"name": "f"}}, True, {"type": "tool", "name": "f"}),
    ],
)
def test_tools_and_their_choice(choice: Any, parallel: bool, written: Any) -> None:
    body = body_of(chat(tools=TOOLS, tool_choice=choice, parallel_tool_calls=parallel))
    schema = {"type": "object"}
    assert body["tools"] == [
        {"name": "f", "input_schema": schema, "description": "d", "strict": True},
        {"name": "g", "input_schema": schema},
    ]
    assert body.get("tool_choice") == written


def test_fields_that_the_api_has() -> None:
    sampling = SamplingParams(temperature=1.0, top_p=0.5, top_k=4, max_tokens=7, stop=("END",))
    schema = {"type": "object"}
    extra = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        "reasoning_effort": "minimal",
        "service_tier": "default",
        "cache_control": {"type": "ephemeral"},
        "prompt_cache_key": "k",
        "store": False,
    }
    given = frozenset({"temperature"})
    body = body_of(chat(sampling=sampling, given=given, user="u", metadata={"a": "b"}, extra=extra))
    assert (body["temperature"], body["top_p"], body["top_k"], body["max_tokens"]) == (1.0, 0.5, 4, 7)
    assert body["stop_sequences"] == ["END"]
    assert body["metadata"] == {"user_id": "u"}
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert (body["service_tier"], body["cache_control"]) == ("standard_only", {"type": "ephemeral"})
    counted = count_body(body)
    assert counted.keys() == {"model", "messages", "thinking", "output_config", "cache_control"}


@pytest.mark.parametrize(
    ("extra", "endpoint", "thinking"),
    [
        ({"reasoning_effort": "high"}, "chat", {"type": "adaptive"}),
        ({"reasoning_effort": "high"}, "messages", None),
        ({"reasoning_effort": "none"}, "chat", {"type": "disabled"}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat", {"type": "disabled"}),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "chat", {"type": "adaptive"}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "reasoning_effort": "low"},
            "chat",
            {"type": "enabled", "budget_tokens": 1024},
        ),
    ],
)
def test_whether_the_model_thinks(extra: Any, endpoint: Any, thinking: Any) -> None:
    assert body_of(chat(extra=extra, endpoint=endpoint)).get("thinking") == thinking


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("n", {"sampling": SamplingParams(n=2)}),
        ("best_of", {"sampling": SamplingParams(best_of=2)}),
        ("logprobs", {"sampling": SamplingParams(logprobs=0)}),
        ("seed", {"sampling": SamplingParams(seed=0)}),
        ("min_p", {"sampling": SamplingParams(min_p=0.1)}),
        ("min_tokens", {"sampling": SamplingParams(min_tokens=1)}),
        ("presence_penalty", {"sampling": SamplingParams(presence_penalty=0.5)}),
        ("repetition_penalty", {"sampling": SamplingParams(repetition_penalty=1.1)}),
        ("logit_bias", {"sampling": SamplingParams(logit_bias={1: 2.0})}),
        ("stop_token_ids", {"sampling": SamplingParams(stop_token_ids=(1,))}),
        ("ignore_eos", {"sampling": SamplingParams(ignore_eos=True)}),
        ("temperature", {"sampling": SamplingParams(temperature=1.1)}),
        ("return_token_ids", {"return_token_ids": True}),
        ("cache_salt", {"cache_salt": "s"}),
        ("priority", {"priority": 1}),
        ("include_reasoning", {"extra": {"include_reasoning": False}}),
        ("prompt_logprobs", {"sampling": SamplingParams(prompt_logprobs=0)}),
        ("guided_json", {"extra": {"guided_json": {}}}),
        ("chat_template_kwargs", {"extra": {"chat_template_kwargs": {"x": 1}}}),
        ("thinking", {"extra": {"thinking": "x"}}),
        ("response_format", {"extra": {"response_format": {"type": "json_object"}}}),
        ("response_format", {"extra": {"response_format": {"type": "json_schema"}}}),
        ("add_generation_prompt", {"extra": {"add_generation_prompt": False}}),
        ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}),
        ("tools[0].type", {"tools": ({"type": "custom", "custom": {}},)}),
        (
            "tools[0].function.other",
            {"tools": ({"type": "function", "function": {"name": "f", "other": 1}},)},
        ),
    ],
)
def test_what_the_api_cannot_express_is_refused(param: str, fields: Any) -> None:
    with pytest.raises(RequestError) as error:
        body_of(chat(**fields))
    assert (error.value.param, error.value.status) == (param, 400)


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("messages[0].role", {"role": "critic", "content": "x"}),
        ("messages[0].name", {"role": "user", "content": "x", "name": "me"}),
        ("messages[0].content[0]", {"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}),
        ("messages[0].content[0]", {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}),
        (
            "messages[0].content[0].image_url.detail",
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}]},
        ),
        ("messages[0].function_call", {"role": "assistant", "function_call": {"name": "f"}}),
        ("messages[0].tool_calls[0]", {"role": "assistant", "tool_calls": [{"type": "custom", "id": "a"}]}),
        (
            "messages[0].tool_calls[0].function.arguments",
            {"role": "assistant", "tool_calls": [call("a", "f", "[1]")]},
        ),
        (
            "messages[0].tool_calls[0].function.arguments",
            {"role": "assistant", "tool_calls": [call("a", "f", '{"a": ')]},
        ),
        ("messages[0].tool_call_id", {"role": "tool", "content": "x"}),
        ("messages[0].refusal", {"role": "assistant", "refusal": 5}),
    ],
)
def test_a_message_that_the_api_cannot_express_is_refused(param: str, message: Any) -> None:
    with pytest.raises(RequestError) as error:
        body_of(chat(messages=(message, *HI)))
    assert error.value.param == param


def test_what_sdks_send_back_of_an_answer_is_taken() -> None:
    nothing = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    assert turns_of(*HI, {"role": "assistant", "content": "a", **nothing}, *HI)[1]["content"] == [
        {"type": "text", "text": "a"}
    ]


def test_a_completion_is_refused() -> None:
    with pytest.raises(RequestError) as error:
        request_body(completion("Hi"), MessagesOptions())
    assert error.value.param == "prompt"
