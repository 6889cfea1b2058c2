"""The chat template of a model: prompts, their arguments and roles, and refused messages."""

import json
from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from engine.protocol import GenerationRequest, RequestError
from engine.protocol.call_arguments import has_other_arguments
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer


@pytest.fixture(scope="module")
def local(tokenizer: PreTrainedTokenizerFast) -> LocalTokenizer:
    return LocalTokenizer(ModelTokenizer.of(tokenizer))


def with_template(tokenizer: PreTrainedTokenizerFast, template: str | None) -> LocalTokenizer:
    fast = tokenizer.backend_tokenizer
    made = PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=template)
    return LocalTokenizer(ModelTokenizer.of(made))


def test_the_chat_template_asks_for_the_assistant(local: LocalTokenizer) -> None:
    ids = local.encode_chat(chat({"role": "user", "content": "hello"}))
    assert local.decode(ids) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert ids[0] == ids.count(2) == 2, "the template's special tokens are tokens"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], None),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], "takes text only"),
        ([{"type": "text"}], "takes text only"),
        (["one"], "takes text only"),
        (None, "refuses"),
        (5, "refuses"),
    ],
)
def test_content_in_parts_is_joined_where_the_template_takes_none(
    local: LocalTokenizer, content: Any, error: str | None
) -> None:
    messages = [{"role": "user", "content": content}]
    if error is None:
        assert "user\none\ntwo<|im_end|>" in local.decode(local.encode_chat(chat(*messages)))
    else:
        with pytest.raises(RequestError, match=error) as caught:
            local.encode_chat(chat(*messages))
        assert caught.value.param == "messages"


@pytest.mark.parametrize("role", ["assistant", "tool"])
@pytest.mark.parametrize("content", [{}, {"content": None}], ids=["missing", "null"])
def test_a_turn_without_content_goes_on_where_the_template_joins_contents(
    tokenizer: PreTrainedTokenizerFast, role: str, content: Any
) -> None:
    template = "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}"
    local = with_template(tokenizer, template)
    turn = {"role": role, "tool_call_id": "c", **content}
    prompt = local.decode(local.encode_chat(chat({"role": "user", "content": "Hi"}, turn)))
    assert prompt == f"user:Hi;{role}:;"


def test_a_template_that_takes_parts_gets_them(tokenizer: PreTrainedTokenizerFast) -> None:
    template = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
    )
    local = with_template(tokenizer, template)
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert local.decode(local.encode_chat(chat({"role": "user", "content": parts}))) == "onetwo"


def test_a_message_that_the_template_refuses_is_the_callers_fault(local: LocalTokenizer) -> None:
    with pytest.raises(RequestError, match="no tools here") as caught:
        local.encode_chat(chat({"role": "tool", "content": "x"}))
    assert (caught.value.param, caught.value.status) == ("messages", 400)


def test_a_model_without_a_template_refuses_chats(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(RequestError, match="no chat template"):
        with_template(tokenizer, None).encode_chat(chat({"role": "user", "content": "x"}))


def test_template_arguments_are_variables_and_nothing_else(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, "{{ 'thinking' if enable_thinking else 'not' }}")
    messages = [{"role": "user", "content": "x"}]
    assert (
        local.decode(local.encode_chat(chat(*messages, chat_template_kwargs={"enable_thinking": True})))
        == "thinking"
    )
    for name in ("chat_template", "tokenize", "tools", "messages", "add_generation_prompt"):
        with pytest.raises(RequestError, match=name) as caught:
            local.encode_chat(chat(*messages, chat_template_kwargs={name: "{{ 1 }}"}))
        assert caught.value.param == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize("endpoint", ["chat", "responses", "messages"])
def test_arguments_of_any_name_and_value_reach_the_template(
    endpoint: Any, tokenizer: PreTrainedTokenizerFast
) -> None:
    local = with_template(tokenizer, "{{ style.tone }} {{ hints | join(',') }} {{ enable_thinking }}")
    given = {"style": {"tone": "dry"}, "hints": [1, 2], "enable_thinking": False, "unread": None}
    request = replace(chat(*SAID, chat_template_kwargs=given), endpoint=endpoint)
    assert local.decode(local.encode_chat(request)) == "dry 1,2 False"


STRICT = (
    "{% for m in messages %}{% if m.role in ('user', 'assistant') or (m.role == 'system' and loop.first) %}"
    "<{{ m.role }}>{{ m.content }}{% elif m.role == 'tool' %}<result>{{ m.content }}"
    "{% elif m.role == 'system' %}{{ raise_exception('a late system message') }}{% endif %}{% endfor %}"
)
"""A template that leaves out messages of other roles, as many do."""


@pytest.mark.parametrize("role", ["critic", "", "User", "ipython", "\ud800", None, 5])
def test_an_unknown_role_is_refused_by_name(role: Any, local: LocalTokenizer) -> None:
    with pytest.raises(RequestError, match="must be one of") as caught:
        local.encode_chat(chat(*SAID, {"role": role, "content": "Hi"}))
    assert (caught.value.param, caught.value.status) == ("messages[2].role", 400)


def test_a_role_that_the_template_leaves_out_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, STRICT)
    with pytest.raises(RequestError, match="leaves out") as caught:
        local.encode_chat(chat(*SAID, {"role": "function", "name": "f", "content": "1"}))
    assert caught.value.param == "messages[2].role"
    assert local.decode(local.encode_chat(chat(*SAID, {"role": "tool", "content": "1"}))).endswith(
        "<result>1"
    )


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        (STRICT, "<system>Be brief<user>Hi"),
        ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "<developer>Be brief<user>Hi"),
    ],
)
def test_a_developer_message_is_a_system_message_where_the_template_has_none(
    template: str, prompt: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    messages = {"role": "developer", "content": "Be brief"}, {"role": "user", "content": "Hi"}
    local = with_template(tokenizer, template)
    assert local.decode(local.encode_chat(chat(*messages))) == prompt


def test_instructions_that_no_role_can_hold_are_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    for role in ("system", "developer"):
        with pytest.raises(RequestError, match=f"leaves out messages of the role {role}"):
            local.encode_chat(chat({"role": role, "content": "Be brief"}, {"role": "user", "content": "Hi"}))


def chat(*messages: Any, **extra: Any) -> GenerationRequest:
    return GenerationRequest(request_id="r", model="m", endpoint="chat", messages=messages, extra=extra)


SAID = {"role": "user", "content": "Tell"}, {"role": "assistant", "content": "Once upon"}


def test_an_answer_can_go_on_from_the_last_message(local: LocalTokenizer) -> None:
    prompt = local.decode(local.encode_chat(chat(*SAID, continue_final_message=True)))
    assert prompt.endswith("<|im_start|>assistant\nOnce upon")
    assert local.decode(local.encode_chat(chat(*SAID))).endswith("<|im_start|>assistant\n")
    whole = local.decode(local.encode_chat(chat(*SAID, add_generation_prompt=False)))
    assert whole.endswith("Once upon<|im_end|>\n")


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"continue_final_message": 1}, "continue_final_message"),
        ({"add_generation_prompt": "no"}, "add_generation_prompt"),
        ({"chat_template_kwargs": 1}, "chat_template_kwargs"),
    ],
)
def test_a_contradiction_about_the_prompts_end_is_refused(
    local: LocalTokenizer, extra: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestError) as caught:
        local.encode_chat(chat(*SAID, **extra))
    assert caught.value.param == field


@pytest.mark.parametrize("content", ["", "  ", "<|im_end|>"])
def test_an_odd_text_to_go_on_from_never_leaves_its_message(local: LocalTokenizer, content: str) -> None:
    last = {"role": "assistant", "content": content}
    prompt = local.decode(local.encode_chat(chat(SAID[0], last, continue_final_message=True)))
    assert prompt.endswith(f"<|im_start|>assistant\n{content}")


TOOL_TEMPLATE = (
    "{% if tools %}tools:{% for t in tools %} {{ t.function.name }}{% endfor %}. {% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}("
    "{% for key, value in c.function.arguments.items() %}{{ key }}={{ value }}{% endfor %}){% endfor %}. "
    "{% endfor %}{% if enable_thinking %}thinking{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def test_the_template_gets_the_tools(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, TOOL_TEMPLATE)
    messages = [{"role": "user", "content": "Hi"}]
    with_tool = replace(chat(*messages), tools=(TOOL,))
    assert local.decode(local.encode_chat(with_tool)) == "tools: weather. user: Hi. "
    both = local.encode_chat(replace(with_tool, extra={"chat_template_kwargs": {"enable_thinking": True}}))
    assert local.decode(both) == "tools: weather. user: Hi. thinking"
    assert local.decode(local.encode_chat(chat(*messages))) == "user: Hi. "


def test_the_template_gets_calls_and_their_answers(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, TOOL_TEMPLATE)
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "sunny"},
    ]
    assert local.decode(local.encode_chat(chat(*messages))) == "assistant: f(a=b). tool: sunny. "
    call["function"] = {"name": "f", "arguments": '{"a": ' + "[" * 900 + "]" * 900 + "}"}
    with pytest.raises(RequestError, match="refuses these messages"):
        local.encode_chat(chat(*messages))


OTHER_ARGUMENTS = {
    "not JSON": ("{a: b}", ""),
    "nested too deep": ("[" * 100_000, ""),
    "a number too long": ('{"a": ' + "9" * 5000 + "}", ""),
    "cut": ('{"a": "b', ""),
    "twice": ('{"a": "b"}{"a": "b"}', ""),
    "null as text": ("null", ""),
    "a list": ('[{"a": "b"}]', ""),
    "a text": ('"b"', ""),
    "JSON in JSON": (json.dumps('{"a": "b"}'), "a=b"),
    "JSON in JSON in JSON": (json.dumps(json.dumps('{"a": "b"}')), "a=b"),
    "a list outside JSON": (["b"], ""),
}


@pytest.mark.parametrize("name", OTHER_ARGUMENTS)
def test_a_chat_goes_on_behind_arguments_that_are_no_object(
    tokenizer: PreTrainedTokenizerFast, name: str
) -> None:
    given, shown = OTHER_ARGUMENTS[name]
    local = with_template(tokenizer, TOOL_TEMPLATE)
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": given}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert local.decode(local.encode_chat(chat(*messages))) == f"assistant: f({shown}). "
    assert has_other_arguments(messages)


@pytest.mark.parametrize("written", [r'{"a": "\ud83d"}', json.dumps(r'{"a": "\ud83d"}')])
def test_half_a_character_in_earlier_arguments_is_a_replacement(
    tokenizer: PreTrainedTokenizerFast, written: str
) -> None:
    local = with_template(tokenizer, TOOL_TEMPLATE)
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": written}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert local.decode(local.encode_chat(chat(*messages))) == "assistant: f(a=\ufffd). "


@pytest.mark.parametrize("given", ['{"a": "b"}', "{}", "", None, {"a": "b"}])
def test_an_object_and_no_arguments_are_as_they_should_be(given: object) -> None:
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": given}}
    assert not has_other_arguments([{"role": "assistant", "tool_calls": [call]}, {"role": "user"}])


@pytest.mark.parametrize("joined", ["'<' + c.function.arguments + '>'", "c.function.arguments"])
def test_a_template_that_joins_arguments_gets_them_as_text(
    tokenizer: PreTrainedTokenizerFast, joined: str
) -> None:
    local = with_template(
        tokenizer,
        "{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ " + joined + " }}{% endfor %};{% endfor %}",
    )
    for given, shown in (('{"a":  "b"}', '{"a":  "b"}'), ("[1]", "{}"), (json.dumps('{"a": 1}'), '{"a": 1}')):
        call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": given}}
        text = local.chat_text(chat({"role": "assistant", "content": "x", "tool_calls": [call]}))
        assert text.replace("<", "").replace(">", "") == f"assistant:x{shown};"


def test_an_empty_list_of_calls_is_left_out(tokenizer: PreTrainedTokenizerFast) -> None:
    template = "{% for m in messages %}{{ 'calls' if m.tool_calls is defined else m.content }}{% endfor %}"
    local = with_template(tokenizer, template)
    for calls in ([], None):
        assert local.chat_text(chat({"role": "assistant", "content": "x", "tool_calls": calls})) == "x"


def test_a_template_that_ignores_tools_gets_none(local: LocalTokenizer) -> None:
    with pytest.raises(RequestError, match="takes no tools") as caught:
        local.encode_chat(replace(chat({"role": "user", "content": "Hi"}), tools=(TOOL,)))
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("extra", "prompt"),
    [
        ({}, "Hi"),
        ({"reasoning_effort": "low"}, "lowHi"),
        ({"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}}, "highHi"),
        ({"verbosity": "low"}, "Hi"),
    ],
)
def test_a_template_that_reads_the_effort_gets_it(
    tokenizer: PreTrainedTokenizerFast, extra: dict[str, Any], prompt: str
) -> None:
    local = with_template(
        tokenizer, "{{ reasoning_effort or '' }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    assert local.template_hints == {"reasoning_effort"}
    request = GenerationRequest(
        request_id="r", model="m", endpoint="chat", messages=({"role": "user", "content": "Hi"},), extra=extra
    )
    assert local.decode(local.encode_chat(request)) == prompt


def test_an_effort_that_is_no_text_is_refused_by_the_callers_name(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, "{{ reasoning_effort }}")
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="responses",
        messages=({"role": "user", "content": "Hi"},),
        extra={"reasoning_effort": 7},
    )
    with pytest.raises(RequestError) as caught:
        local.encode_chat(request)
    assert caught.value.param == "reasoning.effort"


def test_most_templates_read_no_hints(local: LocalTokenizer) -> None:
    assert local.template_hints == frozenset()


@pytest.mark.parametrize(
    "content", ["Hi there", [{"type": "text", "text": "Hi "}, {"type": "text", "text": "there"}]]
)
def test_a_template_that_reads_parts_alone_gets_parts(
    tokenizer: PreTrainedTokenizerFast, content: str | list[dict[str, str]]
) -> None:
    """It leaves out a plain text, without an error."""
    parts = "{% for part in m.content if part.type == 'text' %}{{ part.text }}{% endfor %}"
    local = with_template(tokenizer, f"{{% for m in messages %}}{{{{ m.role }}}}: {parts};{{% endfor %}}")
    assert local.decode(local.encode_chat(chat({"role": "user", "content": content}))) == "user: Hi there;"


QWEN_3_5 = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
MISTRAL = (
    "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}{% if m.role not in ('user', 'assistant') %}"
    "{{ raise_exception('Only user and assistant roles are supported, except an initial system message!') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
FIRST_ONLY = (
    "<system>{{ messages[0].content }}"
    "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
REMINDED = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
    {"role": "system", "content": ""},
)
KEPT = "<system>Be brief.<user>Hi<developer>Be kind.<system>"
FOLDED = "<system>Be brief.\n\nBe kind.<user>Hi"


@pytest.mark.parametrize("template", [QWEN_3_5, MISTRAL, FIRST_ONLY])
def test_system_messages_are_folded_where_the_template_takes_one_alone(
    tokenizer: PreTrainedTokenizerFast, template: str
) -> None:
    local = with_template(tokenizer, template)
    assert local.decode(local.encode_chat(chat(*REMINDED))) == FOLDED
    later = local.decode(local.encode_chat(chat(*REMINDED[1:3])))
    assert later == "<system>Be kind.<user>Hi"


def test_system_messages_stay_where_the_template_takes_them(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, PLAIN)
    assert local.decode(local.encode_chat(chat(*REMINDED))) == KEPT


def test_the_setting_folds_or_keeps_whatever_the_template_does(tokenizer: PreTrainedTokenizerFast) -> None:
    fast = tokenizer.backend_tokenizer
    made = [PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=one) for one in (PLAIN, QWEN_3_5)]
    folding = LocalTokenizer(ModelTokenizer.of(made[0]), system_messages="fold")
    assert folding.decode(folding.encode_chat(chat(*REMINDED))) == FOLDED
    with pytest.raises(RequestError, match="System message must be at the beginning"):
        LocalTokenizer(ModelTokenizer.of(made[1]), system_messages="keep").encode_chat(chat(*REMINDED))


def test_a_system_message_that_the_answer_continues_is_not_folded(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, QWEN_3_5)
    with pytest.raises(RequestError, match="System message must be at the beginning"):
        local.encode_chat(chat(*REMINDED[:2], REMINDED[3] | {"content": "x"}, continue_final_message=True))
