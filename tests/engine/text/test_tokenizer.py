"""The tokenizer and the chat template of a model: ids, bytes, prompts, and refused messages."""

import sys
import threading
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from engine.protocol import GenerationRequest, RequestError
from engine.text.tokenizer import LocalTokenizer


@pytest.fixture(scope="module")
def local(tokenizer: PreTrainedTokenizerFast) -> LocalTokenizer:
    return LocalTokenizer(tokenizer)


def with_template(tokenizer: PreTrainedTokenizerFast, template: str | None) -> LocalTokenizer:
    fast = tokenizer.backend_tokenizer
    return LocalTokenizer(PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=template))


def test_encode_and_decode_are_inverse(local: LocalTokenizer) -> None:
    for text in ("hello world", "Grüße, 你好 🎉", "<|im_start|>user\n", ""):
        assert local.decode(local.encode(text)) == text


def test_the_bytes_of_all_tokens_are_the_text_s(local: LocalTokenizer) -> None:
    text = "Grüße, 你好 🎉\t\0 hello<|im_end|>"
    assert b"".join(map(local.raw, local.encode(text))) == text.encode()
    assert local.raw(2) == b"<|im_start|>"
    assert local.raw(123456) == b""


def test_bytes_of_metaspace_and_byte_tokens() -> None:
    vocab = {"▁hello": 0, "<0xE4>": 1, "world": 2, "<0x>": 3}
    fast = Tokenizer(models.WordLevel(vocab, "world"))
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    local = LocalTokenizer(PreTrainedTokenizerFast(tokenizer_object=fast))
    assert [local.raw(i) for i in range(4)] == [b" hello", b"\xe4", b"world", b"<0x>"]


def test_a_lone_surrogate_is_refused(local: LocalTokenizer) -> None:
    with pytest.raises(RequestError, match="Unicode"):
        local.encode("a\ud800b")


@pytest.fixture
def limited(tokenizer: PreTrainedTokenizerFast) -> LocalTokenizer:
    limited = LocalTokenizer(tokenizer)
    limited.max_tokens = 10
    return limited


def test_a_text_with_too_many_bytes_is_not_tokenized(limited: LocalTokenizer) -> None:
    limited.fast = None  # nothing can tokenize
    most = limited.max_prompt_bytes
    assert most == 10 * len("<|im_start|>"), "the longest token"
    for text in ("a" * (most + 1), "é" * (most // 2 + 1)):
        with pytest.raises(RequestError, match=f"No text of more than {most} bytes") as caught:
            limited.encode(text)
        assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(RequestError) as caught:
        limited.apply_chat_template([{"role": "user", "content": "a" * most}])
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")


def test_no_token_has_more_bytes_than_the_bound_says(limited: LocalTokenizer) -> None:
    assert max(len(limited.raw(token_id)) for token_id in range(400)) * 10 == limited.max_prompt_bytes
    longest = "<|im_start|>" * 10
    assert len(limited.encode(longest)) == 10


def test_a_normalizer_may_shrink_a_text() -> None:
    fast = Tokenizer(models.WordLevel({"ab": 0, "x": 1}, "x"))
    fast.normalizer = normalizers.NFKC()
    limited = LocalTokenizer(PreTrainedTokenizerFast(tokenizer_object=fast))
    limited.max_tokens = 1
    assert limited.encode("𝐚𝐛") == [0]


@pytest.mark.parametrize("method", ["encode", "decode"])
def test_other_threads_run_while_a_long_text_is_read(local: LocalTokenizer, method: str) -> None:
    argument: Any = "hello world " * 50_000 if method == "encode" else [300] * 500_000
    may_begin = threading.Lock()
    is_done = False
    seen: list[bool] = []

    def look() -> None:
        with may_begin:
            seen.append(is_done)

    may_begin.acquire()
    thread = threading.Thread(target=look)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no thread has to give way to another one
    try:
        may_begin.release()
        getattr(local, method)(argument)
        is_done = True
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert seen == [False]


def test_the_chat_template_asks_for_the_assistant(local: LocalTokenizer) -> None:
    ids = local.apply_chat_template([{"role": "user", "content": "hello"}])
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
        assert "user\none\ntwo<|im_end|>" in local.decode(local.apply_chat_template(messages))
    else:
        with pytest.raises(RequestError, match=error) as caught:
            local.apply_chat_template(messages)
        assert caught.value.param == "messages"


def test_a_template_that_takes_parts_gets_them(tokenizer: PreTrainedTokenizerFast) -> None:
    template = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}"
        "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
    )
    local = with_template(tokenizer, template)
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert local.decode(local.apply_chat_template([{"role": "user", "content": parts}])) == "onetwo"


def test_a_message_that_the_template_refuses_is_the_callers_fault(local: LocalTokenizer) -> None:
    with pytest.raises(RequestError, match="no tools here") as caught:
        local.apply_chat_template([{"role": "tool", "content": "x"}])
    assert (caught.value.param, caught.value.status) == ("messages", 400)


def test_a_model_without_a_template_refuses_chats(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(RequestError, match="no chat template"):
        with_template(tokenizer, None).apply_chat_template([{"role": "user", "content": "x"}])


def test_template_arguments_are_variables_and_nothing_else(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, "{{ 'thinking' if enable_thinking else 'not' }}")
    messages = [{"role": "user", "content": "x"}]
    assert local.decode(local.apply_chat_template(messages, {"enable_thinking": True})) == "thinking"
    for name in ("chat_template", "tokenize"):
        with pytest.raises(RequestError, match=name):
            local.apply_chat_template(messages, {name: "{{ 1 }}"})


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
    assert local.decode(local.apply_chat_template(messages, None, [TOOL])) == "tools: weather. user: Hi. "
    both = local.apply_chat_template(messages, {"enable_thinking": True}, [TOOL])
    assert local.decode(both) == "tools: weather. user: Hi. thinking"
    assert local.decode(local.apply_chat_template(messages)) == "user: Hi. "


def test_the_template_gets_calls_and_their_answers(tokenizer: PreTrainedTokenizerFast) -> None:
    local = with_template(tokenizer, TOOL_TEMPLATE)
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "sunny"},
    ]
    assert local.decode(local.apply_chat_template(messages)) == "assistant: f(a=b). tool: sunny. "
    for arguments in ("{a: b}", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"):
        call["function"] = {"name": "f", "arguments": arguments}
        with pytest.raises(RequestError, match="not valid JSON") as caught:
            local.apply_chat_template(messages)
        assert caught.value.param == "messages"
    call["function"] = {"name": "f", "arguments": '{"a": ' + "[" * 900 + "]" * 900 + "}"}
    with pytest.raises(RequestError, match="refuses these messages"):
        local.apply_chat_template(messages)


def test_a_template_that_ignores_tools_gets_none(local: LocalTokenizer) -> None:
    with pytest.raises(RequestError, match="takes no tools") as caught:
        local.apply_chat_template([{"role": "user", "content": "Hi"}], None, [TOOL])
    assert caught.value.param == "tools"
