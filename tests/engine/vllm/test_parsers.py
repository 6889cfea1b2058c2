"""Weir's parsers split whole outputs as vLLM's parsers of the same names do."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.parsers import REASONING_PARSERS, Parsers
from engine.parsers.reasoning import REASONING_MARKERS, markers_of
from tests.engine.parsers.streams import CUTS, cut_at, parse, request_with_tools, said, untold
from tests.helpers import examples, make_request

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm")

HAS_SWITCH = {"glm45", "qwen3", "seed_oss"}
WORDS = ("ab", " ", "\n", "x.", "<", "</th", "é", "🎉")


class Vocabulary:
    """A tokenizer of markers: vLLM's parsers look up their ids, and read whole texts without them."""

    chat_template = None
    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def __init__(self, *without: str) -> None:
        markers = {m for one in REASONING_MARKERS.values() for m in (*one.start, *one.end, *one.calls)}
        more = {"</tool_call>", "[ARGS]", "<|python_tag|>", "Ġ</", "</", "think", ">"}
        self._words = sorted((markers | more) - set(without))

    def get_vocab(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self._words)}

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self._words.index(text)] if text in self._words else []

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(self._words[i] for i in ids)


def vllm_request(**fields: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}], model="m", **fields)


def reasoning_of_vllm(name: str, text: str, kwargs: dict[str, Any]) -> tuple[str, str]:
    from vllm.reasoning import ReasoningParserManager

    cls: Any = ReasoningParserManager.get_reasoning_parser(name)
    parser = cls(Vocabulary(), **({"chat_template_kwargs": kwargs} if kwargs else {}))
    reasoning, content = parser.extract_reasoning(text, vllm_request())
    return reasoning or "", content or ""


def split(name: str, pieces: list[str], kwargs: dict[str, Any]) -> tuple[str, str]:
    request = make_request(extra={"chat_template_kwargs": kwargs} if kwargs else {})
    made = parse(Parsers(reasoning=name), untold(pieces), request)
    reasoning, content = ("".join(d.text for d in made if d.channel == c) for c in ("reasoning", "content"))
    return reasoning, content


def differs(name: str, text: str) -> bool:
    """Whether the module `engine.parsers.reasoning` says that Weir splits this text in another way."""
    markers = markers_of(name)
    starts = [at for marker in markers.start if (at := text.find(marker)) >= 0]
    ends = [at for marker in markers.end if (at := text.find(marker)) >= 0]
    if name == "granite":  # text in front is dropped by vLLM, and reasoning that never ends is content
        return bool(starts) and (bool(text[: min(starts)].strip()) or not ends or max(ends) < min(starts))
    if name == "olmo3":  # reasoning that never ends is content
        return not ends or text.lstrip() != text
    # Text in front of the first start marker is dropped by vLLM, reasoning and content.
    return name == "deepseek_r1" and bool(starts) and bool(text[: min(starts)].strip())


@pytest.mark.parametrize("name", sorted(set(REASONING_PARSERS) - {"openai_gptoss"}))
def test_reasoning_is_split_as_in_vllm_at_every_cut(name: str) -> None:
    markers = markers_of(name)
    fragments = (*(markers.start or ("<think>",)), *markers.end, *markers.calls, *WORDS)
    switches = [{}, {"enable_thinking": False}, {"enable_thinking": True}] if name in HAS_SWITCH else [{}]

    @examples(400)
    @given(
        parts=st.lists(st.sampled_from(fragments), max_size=8), kwargs=st.sampled_from(switches), cuts=CUTS
    )
    def check(parts: list[str], kwargs: dict[str, Any], cuts: list[int]) -> None:
        text = "".join(parts)
        if name == "olmo3" and not any(end in text for end in markers.end):
            text += markers.end[0]  # vLLM says that reasoning that never ends is content
        assume(not differs(name, text))
        reasoning, content = split(name, [text], kwargs)
        theirs = reasoning_of_vllm(name, text, kwargs)
        # Some of vLLM's parsers drop the blanks at the end of all reasoning.
        assert (reasoning.rstrip(), content) == (theirs[0].rstrip(), theirs[1])
        assert (
            split(name, cut_at(text, cuts), kwargs) == split(name, list(text), kwargs) == (reasoning, content)
        )

    check()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab}{"\\é🎉 ', max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("kl", max_size=2), inner, max_size=2),
    max_leaves=4,
)
DRAWN_CALLS = st.lists(
    st.tuples(
        st.sampled_from(["f", "get_it"]), st.dictionaries(st.text("kl", max_size=2), VALUES, max_size=2)
    ),
    min_size=1,
    max_size=3,
)


def dumped(key: str, calls: list[tuple[str, Any]]) -> list[str]:
    return [json.dumps({"name": name, key: arguments}) for name, arguments in calls]


FORMS: dict[str, tuple[str, Callable[[list[tuple[str, Any]]], str], tuple[str, ...]]] = {
    "hermes": (
        "hermes",
        lambda calls: "\n".join(f"<tool_call>\n{c}\n</tool_call>" for c in dumped("arguments", calls)),
        (),
    ),
    "llama3_json": ("llama3_json", lambda calls: "; ".join(dumped("parameters", calls)), ()),
    "mistral before v11": (
        "mistral",
        lambda calls: f"[TOOL_CALLS][{', '.join(dumped('arguments', calls))}]",
        ("[ARGS]",),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_calls_are_read_as_in_vllm_at_every_cut(form: str) -> None:
    from vllm.tool_parsers import ToolParserManager

    name, write, without = FORMS[form]
    tools = [{"type": "function", "function": {"name": n, "parameters": {}}} for n in ("f", "get_it")]
    cls: Any = ToolParserManager.get_tool_parser(name)

    @examples(200)
    @given(calls=DRAWN_CALLS, cuts=CUTS)
    def check(calls: list[tuple[str, Any]], cuts: list[int]) -> None:
        text = write(calls)
        theirs = cls(Vocabulary(*without)).extract_tool_calls(text, vllm_request(tools=tools))
        expected = [(c.function.name, json.loads(c.function.arguments)) for c in theirs.tool_calls]
        for pieces in ([text], cut_at(text, cuts), list(text)):
            made = said_calls(parse(Parsers(tool_calls=name), untold(pieces), request_with_tools()))
            assert made == expected == calls

    check()


def said_calls(made: list[Any]) -> list[tuple[str, Any]]:
    texts: dict[Any, str] = {}
    for delta in made:
        if delta.tool_call is not None:
            texts[delta.tool_call] = texts.get(delta.tool_call, "") + delta.text
    return [(call.name, json.loads(text)) for call, text in texts.items()]


BODIES = st.sampled_from(["Hm.", "a b\n", '{"a": 1}', "é🎉x", " y "])
CALLED = st.sampled_from(
    [
        "<|channel|>commentary to=functions.f",
        "<|channel|>analysis to=functions.get_it",
        " to=functions.f<|channel|>commentary",
    ]
)
TYPES = st.sampled_from(["", " <|constrain|>json", " json", " <|constrain|>json "])
HEADERS = st.sampled_from([f"<|channel|>{channel}" for channel in ("analysis", "commentary", "final")])


@pytest.mark.skipif(
    "TIKTOKEN_ENCODINGS_BASE" not in os.environ, reason="the vocabulary o200k_base is read from this folder"
)
def test_harmony_is_read_as_openais_library_reads_it() -> None:
    import openai_harmony

    encoding = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    messages = st.tuples(HEADERS, st.just(""), BODIES) | st.tuples(CALLED, TYPES, BODIES)

    @examples(400)
    @given(parts=st.lists(messages, min_size=1, max_size=5), cuts=CUTS)
    def check(parts: list[tuple[str, str, str]], cuts: list[int]) -> None:
        ends = ["<|call|>" if "to=" in header else "<|end|>" for header, _, _ in parts]
        text = "<|start|>assistant".join(
            f"{header}{kind}<|message|>{body}{end}"
            for (header, kind, body), end in zip(parts, ends, strict=True)
        )
        expected: list[tuple[str, str]] = []
        read = encoding.parse_messages_from_completion_tokens(
            encoding.encode(text, allowed_special="all"), openai_harmony.Role.ASSISTANT
        )
        for message in read:
            body = "".join(part.text for part in message.content)
            plain = "reasoning" if message.channel == "analysis" else "content"
            name = message.recipient.removeprefix("functions.") if message.recipient else plain
            joins = expected and not message.recipient and expected[-1][0] == name
            expected = (
                [*expected[:-1], (name, expected[-1][1] + body)] if joins else [*expected, (name, body)]
            )
        assert said(parse(Parsers(tool_calls="openai"), untold(cut_at(text, cuts)))) == expected

    check()
