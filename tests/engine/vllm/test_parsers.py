"""Weir's parsers split whole outputs as vLLM's parsers of the same names do."""

import json
import os
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.parsers import REASONING_PARSERS, Parsers
from engine.parsers.formats import FORMATS
from engine.parsers.reasoning import REASONING_MARKERS, markers_of
from engine.parsers.typed import typed
from tests.engine.parsers.streams import CUTS, cut_at, parse, said, untold
from tests.engine.parsers.test_formats import read
from tests.engine.parsers.written_calls import DRAWN_CALLS, TOOLS, VALUES, WRITERS, Call, kinds
from tests.helpers import examples, make_request

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm")

HAS_SWITCH = {name for name, one in REASONING_MARKERS.items() if one.switches}
WORDS = ("ab", " ", "\n", "x.", "<", "</th", "é", "🎉")


class Vocabulary:
    """A tokenizer of markers: vLLM's parsers look up their ids, and read whole texts without them."""

    chat_template = None
    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def __init__(self, *without: str) -> None:
        markers = {m for one in REASONING_MARKERS.values() for m in (*one.start, *one.end, *one.calls)}
        markers |= {marker for form in FORMATS.values() for marker in form.markers}
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
    if name == "gemma4":  # an end alone makes reasoning of the text before, and one title is dropped
        behind = text.partition(markers.start[0])[2].removeprefix(markers.title)
        return markers.title in behind or (not starts and (bool(ends) or text.startswith(markers.title)))
    if name == "ernie45" and any(one in text for given in markers.answer for one in given):
        reasoning, _, content = text.partition(markers.end[0])  # text around an answer is dropped
        return "response>" in reasoning or not re.fullmatch(r"\s*<response>[^<]*</response>", content)
    if name == "hunyuan_a13b":  # text after an answer is dropped, and reasoning that never ends is content
        begins, (end,) = text.startswith(markers.start), markers.answer[1]
        reasoning, _, content = text.partition(markers.end[0]) if begins else ("", "", text)
        is_odd = end in reasoning or (begins and not ends) or (starts and not begins)
        return is_odd or text.lstrip() != text or bool(content.partition(end)[2])
    # Text in front of the first start marker is dropped by vLLM, reasoning and content.
    is_r1 = name in ("deepseek_r1", "deepseek_v3", "ernie45", "holo2")
    return is_r1 and bool(starts) and bool(text[: min(starts)].strip())


@pytest.mark.parametrize("name", sorted(set(REASONING_PARSERS) - {"openai_gptoss"}))
def test_reasoning_is_split_as_in_vllm_at_every_cut(name: str) -> None:
    markers = markers_of(name)
    answers = [one for given in (*markers.answer, (markers.title,)) for one in given if one]
    fragments = (*(markers.start or ("<think>",)), *markers.end, *markers.calls, *answers, *WORDS)
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


DIFFERENCES: dict[str, dict[str, set[str]]] = {
    "vLLM loses the words after a call, or between calls": {
        "words after": set(WRITERS) - {"granite4", "step3", "xlam"},
        "words between": set(WRITERS) - {"granite4", "step3", "xlam"},
    },
    "vLLM loses the words before a call": {
        "words before": {"olmo3", "phi4_mini_json"},
        "a tag before": {"olmo3", "phi4_mini_json"},
    },
    "vLLM reads the first group of calls, and loses later ones": {
        "words between": {"step3", "xlam"},
        "calls apart": {"hunyuan_a13b", "mistral", "olmo3", "phi4_mini_json", "step3", "xlam"},
    },
    "vLLM loses the text of a call that is none, or its marker, or makes a call of words": {
        "words in place of a call": {
            *("deepseek_v3", "deepseek_v31", "deepseek_v4", "ernie45", "gemma4", "glm45", "glm47", "granite"),
            *("kimi_k2", "mimo", "minimax_m2", "mistral", "qwen3_coder", "qwen3_xml", "seed_oss", "step3p5"),
        },
        "an unknown tool": {"glm45", "glm47", "minimax_m2"},
    },
    "of a call that is cut, vLLM makes a call without the argument, or loses the text; its streams differ": {
        "cut in a value": set(WRITERS)
        - {"granite", "kimi_k2", "llama4_pythonic", "olmo3", "pythonic", "step3"}
    },
    "vLLM makes no call of a whole one whose last marker is missing": {
        "no last marker": {"ernie45", "granite4", "hunyuan_a13b", "olmo3", "step3", "xlam"}
    },
    "vLLM makes no call after a blank, or before words, which a stream cannot know": {
        "blanks around": {"llama4_pythonic", "pythonic"}
    },
    "vLLM's list of calls ends at the first bracket of an argument, and the call is lost": {
        f"value: {kind}": {"phi4_mini_json"}
        for kind in ("a list", "an empty list", "braces", "objects within", "several")
    },
    "vLLM loses a value with `<`, and types neither lists nor objects, nor a choice of types": {
        f"value: {kind}": {"step3"}
        for kind in (
            *("a tag", "null", "a list", "an empty list", "an object", "an empty object"),
            *("objects within", "several"),
        )
    },
    "in vLLM a word without quotes is a string if the schema does not say what it is": {
        f"value: {kind}": {"gemma4"} for kind in ("a list", "an object", "objects within")
    },
}
"""Where Weir's parser differs from vLLM's, by kind of text: the parsers."""


def differs_for(parser: str, kind: str) -> bool:
    return any(parser in kinds.get(kind, ()) for kinds in DIFFERENCES.values())


def calls_of_vllm(parser: str, text: str) -> tuple[list[tuple[str, Any]], str]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam
    from vllm.tool_parsers import ToolParserManager

    cls: Any = ToolParserManager.get_tool_parser(parser)
    tools: list[Any] = [ChatCompletionToolsParam(**tool) for tool in TOOLS]
    made = cls(Vocabulary("[ARGS]"), tools).extract_tool_calls(text, vllm_request(tools=list(TOOLS)))
    calls = [(call.function.name, meant(call.function.arguments)) for call in made.tool_calls]
    return calls, (made.content or "").strip()


def calls_of_weir(parser: str, text: str) -> tuple[list[tuple[str, Any]], str]:
    calls, content = read(parser, [text])
    return [(name, meant(arguments)) for name, arguments in calls], content.strip()


def meant(arguments: str) -> Any:
    """The value of JSON. JSON that is cut has none but itself."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@pytest.mark.parametrize("parser", WRITERS)
def test_a_text_of_each_kind_is_read_as_in_vllm(parser: str) -> None:
    for name, kind in kinds(parser).items():
        is_same = calls_of_weir(parser, kind.text) == calls_of_vllm(parser, kind.text)
        assert is_same != differs_for(parser, name), name


@pytest.mark.parametrize("parser", WRITERS)
def test_drawn_calls_are_read_as_in_vllm(parser: str) -> None:
    values = ((f"value: {name}", given) for name, given in VALUES if len(given) == 1)
    unlike = {key for name, given in values if differs_for(parser, name) for key in given}

    @examples(100)
    @given(drawn=DRAWN_CALLS)
    def check(drawn: list[Call]) -> None:
        calls = [(name, {key: given[key] for key in given if key not in unlike}) for name, given in drawn]
        text = WRITERS[parser](calls)
        assert calls_of_vllm(parser, text) == calls_of_weir(parser, text) == (calls, "")

    check()


SCHEMA_TYPES = ("null", "integer", "number", "boolean", "object", "array", "string", "int64", "dict", "odd")
SCHEMAS = st.one_of(
    st.builds(
        lambda one: {"type": one},
        st.sampled_from(SCHEMA_TYPES) | st.lists(st.sampled_from(SCHEMA_TYPES), max_size=2),
    ),
    st.builds(
        lambda some: {"anyOf": [{"type": one} for one in some]},
        st.lists(st.sampled_from(SCHEMA_TYPES), max_size=3),
    ),
    st.builds(lambda some: {"enum": some}, st.lists(st.none() | st.integers() | st.just("x"), max_size=2)),
    st.just({}),
)
BARE = st.sampled_from(["null", "NULL", "true", "True", " 1 ", "0", "1.0", "-2.5", "1e999", "[1e999]", "NaN"])


@examples(2000)
@given(text=BARE | st.text('019.-e{}[]":,a ', max_size=8), schema=SCHEMAS)
def test_bare_text_is_typed_as_in_vllm(text: str, schema: dict[str, Any]) -> None:
    from vllm.tool_parsers.utils import coerce_to_schema_type, extract_types_from_schema

    theirs = coerce_to_schema_type(text, extract_types_from_schema(schema))
    ours = typed(text, schema)
    assert (ours, type(ours)) == (theirs, type(theirs))


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
