"""Parsers of reasoning: the text between a family's markers is on the reasoning channel."""

from dataclasses import replace
from typing import Any

import pytest

from engine.parsers import REASONING_PARSERS, Parsers
from engine.parsers.reasoning import REASONING_MARKERS
from engine.protocol import Delta, GenerationRequest, PromptScores
from tests.engine.parsers.streams import cut_at, parse, request_with_tools, said, tokenised, tokens_of, untold
from tests.helpers import make_request, make_token

QWEN3 = Parsers(reasoning="qwen3")
R1 = Parsers(reasoning="deepseek_r1")


class PromptEnd:
    """A tokenizer that decodes every prompt to the same end."""

    def __init__(self, text: str) -> None:
        self.text = text

    def decode(self, ids: object) -> str:
        return self.text


OFF = request_with_tools(tools=(), extra={"chat_template_kwargs": {"enable_thinking": False}})


def thinking(name: str) -> GenerationRequest:
    """A request that turns reasoning on where it must."""
    is_on = REASONING_MARKERS[name].needs_switch
    return request_with_tools(extra={"chat_template_kwargs": {"thinking": True}} if is_on else {})


@pytest.mark.parametrize("name", sorted(REASONING_MARKERS))
def test_every_family_splits_at_its_markers(name: str) -> None:
    markers = REASONING_MARKERS[name]
    text = f"{''.join(markers.start[:1])}Hm, <b>.{markers.end[-1]}\n\nAn answer."
    expected = [("reasoning", "Hm, <b>."), ("content", "\n\nAn answer.")]
    assert (
        said(parse(Parsers(reasoning=name), untold(cut_at(text, range(0, 99, 3))), thinking(name)))
        == expected
    )
    assert name in REASONING_PARSERS


@pytest.mark.parametrize(
    "name", sorted(name for name, one in REASONING_MARKERS.items() if one.is_open or one.may_be_open)
)
def test_an_output_has_only_the_end_marker_if_the_template_opened_reasoning(name: str) -> None:
    text = f"Let me think.{REASONING_MARKERS[name].end[0]}Hello!"
    for pieces in ([text], list(text)):
        made = parse(Parsers(reasoning=name), untold(pieces), thinking(name))
        assert said(made) == [("reasoning", "Let me think."), ("content", "Hello!")]


@pytest.mark.parametrize("name", sorted(REASONING_MARKERS))
@pytest.mark.parametrize(
    "extra",
    [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
        {"reasoning_effort": "none"},
    ],
    ids=str,
)
def test_an_answer_without_thinking_is_content(name: str, extra: dict[str, Any]) -> None:
    made = parse(Parsers(reasoning=name), untold(list("0.9 is more.")), make_request(extra=extra))
    assert said(made) == [("content", "0.9 is more.")]


def test_each_family_has_its_own_switches() -> None:
    off = make_request(extra={"chat_template_kwargs": {"thinking": False}})
    for name, channel in (("qwen3", "reasoning"), ("glm45", "content"), ("deepseek_r1", "content")):
        assert said(parse(Parsers(reasoning=name), untold(["Hm."]), off)) == [(channel, "Hm.")]
    on = make_request(extra={"chat_template_kwargs": {"thinking": True, "enable_thinking": False}})
    assert said(parse(Parsers(reasoning="glm45"), untold(["Hm."]), on)) == [("reasoning", "Hm.")]


def test_a_model_that_thinks_all_the_same_does_not_answer_with_its_thoughts() -> None:
    made = parse(R1, untold(["<think>Hm.</think>", "Yes."]), OFF)
    assert said(made) == [("reasoning", "Hm."), ("content", "Yes.")]


@pytest.mark.parametrize(
    ("name", "text", "reasoning", "content"),
    [
        ("qwen3", "<think>a</think>b</think>c", "a", "bc"),
        ("qwen3", "<think>a<think>b</think>c", "ab", "c"),
        ("qwen3", "<think>a</think>b<think>c", "a", "b<think>c"),
        ("qwen3", "a<tool_call>b</think>c", "a", "<tool_call>bc"),
        ("seed_oss", "a<seed:tool_call>b", "a", "<seed:tool_call>b"),
        ("minimax_m2", "a<minimax:tool_call>b</think>", "a", "<minimax:tool_call>b"),
        ("glm45", "<think>a</think>b<think>c</think>d", "ac", "bd"),
        ("mistral", "x[THINK]a[/THINK]b[THINK]c[/THINK]d[/THINK]e", "ac", "xbde"),
        ("mistral", "[THINK]a[TOOL_CALLS]f{}", "a", "[TOOL_CALLS]f{}"),
        ("deepseek_r1", "<think>a</think>b</think>c", "a", "b</think>c"),
        ("granite", "xHere is my thought process:aHere's my response:b", "a", "xb"),
        ("step3", "<think>a</think>b", "<think>a", "b"),
        ("kimi_k2", "a<|tool_calls_section_begin|>b", "a", "<|tool_calls_section_begin|>b"),
        ("gemma4", "<|channel>thought\na<channel|>b", "a", "b"),
        ("gemma4", "a<|channel>b<channel|>c", "b", "ac"),
        ("ernie45", "a</think>\n\n<response>\nb\n</response>\n", "a", "\nb\n\n"),
        ("ernie45", "a</think>\nb", "a", "\nb"),
        ("hunyuan_a13b", "<think>\na\n</think>\n<answer>\nb\n</answer>", "a", "b"),
        ("hunyuan_a13b", "b\n</answer>", "", "b"),
        ("step3p5", "a</think>b", "a", "b"),
    ],
)
def test_later_markers_count_as_in_vllm(name: str, text: str, reasoning: str, content: str) -> None:
    """Without tools in the request, a call that ends reasoning is content."""
    for pieces in ([text], list(text)):
        made = parse(Parsers(reasoning=name), untold(pieces), make_request())
        assert "".join(d.text for d in made if d.channel == "reasoning") == reasoning
        assert "".join(d.text for d in made if d.channel == "content") == content


CALLS_OF = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": {"a": "</think>"}}\n</tool_call>',
    "llama3_json": '<|python_tag|>{"name": "f", "parameters": {"a": "</think>"}}',
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": "</think>"}',
}


@pytest.mark.parametrize("name", sorted(REASONING_MARKERS))
@pytest.mark.parametrize("tools", sorted(CALLS_OF))
def test_a_call_inside_reasoning_is_a_call(name: str, tools: str) -> None:
    markers, call = REASONING_MARKERS[name], CALLS_OF[tools]
    start, end = "".join(markers.start[:1]), markers.end[0]
    arguments = ("f", '{"a": "</think>"}')
    said_first = "I call." + "\n" * (not end.startswith("\n"))  # a blank that may begin the marker is lost
    for text, expected in (
        (f"{start}{said_first}{call}", [("reasoning", said_first), arguments]),
        (f"{start}I call.{call}{end}Done.", [("reasoning", "I call."), arguments, ("content", "Done.")]),
        (f"{start}I call.{end}\n\n{call}", [("reasoning", "I call."), arguments]),
        (f"{start}I call.{end}\n\nSo:{call}", [("reasoning", "I call."), ("content", "\n\nSo:"), arguments]),
    ):
        for pieces in ([text], list(text), cut_at(text, range(0, 99, 5))):
            made = parse(Parsers(name, tools), untold(pieces), thinking(name))
            assert said(made) == expected
            assert made[-1].finish_reason == "tool_calls"


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1"])
def test_reasoning_that_talks_about_calls_goes_on(name: str) -> None:
    text = "<think>I could write <tool_call> here, but no.</think>Done."
    for pieces in ([text], list(text)):
        made = parse(Parsers(name, "hermes"), untold(pieces))
        assert said(made) == [("reasoning", "I could write <tool_call> here, but no."), ("content", "Done.")]
        assert made[-1].finish_reason == "stop"


def test_a_call_in_json_may_follow_reasoning_without_a_marker() -> None:
    text = 'Hm.</think>\n\n{"name": "f", "parameters": {"a": 1}}'
    for pieces in ([text], list(text)):
        made = parse(Parsers("deepseek_r1", "llama3_json"), untold(pieces))
        assert said(made) == [("reasoning", "Hm."), ("f", '{"a": 1}')]


def test_an_output_may_begin_inside_reasoning() -> None:
    assert said(parse(R1, untold(["Hm.</think>", "Yes."]))) == [("reasoning", "Hm."), ("content", "Yes.")]
    assert said(parse(R1, untold(["<think>Hm.</think>Yes."]))) == [("reasoning", "Hm."), ("content", "Yes.")]


@pytest.mark.parametrize(
    ("parsers", "prompt_end", "channel"),
    [
        (QWEN3, "assistant\n", "content"),
        (QWEN3, "assistant\n<think>\n", "reasoning"),
        (QWEN3, "assistant\n<think>\n\n</think>\n\n", "content"),
        (R1, "<|Assistant|>", "reasoning"),
        (R1, "<|Assistant|><think>\n", "reasoning"),
        (R1, "<|Assistant|><think>\n\n</think>", "content"),
        (QWEN3, "user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", "content"),
    ],
)
def test_the_prompts_end_shows_where_the_output_begins(
    parsers: Parsers, prompt_end: str, channel: str
) -> None:
    deltas = untold(["Hm", "."])
    scores = PromptScores((), ((0.5,),))
    deltas[0] = replace(deltas[0], prompt_token_ids=(1, 2, 3), prompt_scores=scores)
    made = parse(parsers, deltas, tokenizer=PromptEnd(prompt_end))
    assert said(made) == [(channel, "Hm.")]
    assert [d.prompt_token_ids for d in made] == [(1, 2, 3), *[None] * (len(made) - 1)]
    assert [d.prompt_scores for d in made] == [scores, *[None] * (len(made) - 1)]


def test_an_answer_may_speak_of_the_markers() -> None:
    for text in ("Write <think> or </think>.", "<think>a</think>Write <think> or </think>."):
        request = OFF if text.startswith("W") else make_request()
        parsers = QWEN3 if text.startswith("W") else R1
        assert said(parse(parsers, untold(list(text)), request))[-1] == (
            "content",
            text.split("a</think>")[-1],
        )


def test_an_unfinished_marker_is_text_again() -> None:
    assert said(parse(QWEN3, untold(["<thi"]))) == [("reasoning", "<thi")]
    assert said(parse(QWEN3, untold(["<think>Hm</thi"]))) == [("reasoning", "Hm</thi")]


def test_text_goes_on_as_soon_as_it_can_be_no_marker() -> None:
    made = parse(QWEN3, untold(["<think>", "Hm</", "thin", "g</thi", "nk>Yes <", "b"]))
    assert [d.text for d in made] == ["Hm", "</thin" + "g", "Yes ", "<b", ""]


def test_a_markers_token_goes_with_the_text_that_follows() -> None:
    made = parse(QWEN3, tokenised(["<think>", "Hm", "</think>", "Yes"]))
    assert [(d.channel, [(t.id, t.text) for t in d.tokens]) for d in made] == [
        ("reasoning", [(0, ""), (1, "Hm")]),
        ("content", [(2, ""), (3, "Yes")]),
        ("content", [(9999, "")]),
    ]
    assert all(t.logprob is not None for _, t in tokens_of(made))


def test_a_special_token_is_known_by_its_bytes() -> None:
    magistral = Parsers(reasoning="mistral")
    made = parse(magistral, tokenised(["[THINK]", "Hm", "[/THINK]", "Yes"], ["[THINK]", "[/THINK]"]))
    assert said(made) == [("reasoning", "Hm"), ("content", "Yes")]
    assert [t.id for _, t in tokens_of(made)] == [0, 1, 2, 3, 9999]


def test_a_token_that_is_part_marker_moves_with_its_text_as_one_piece() -> None:
    made = parse(QWEN3, tokenised(["<think>H", "m</think>"]))
    assert [(c, t.id, t.text) for c, t in tokens_of(made)] == [
        *(("reasoning", 0, ""), ("reasoning", None, "H")),
        *(("reasoning", 1, ""), ("reasoning", None, "m")),
        ("content", 9999, ""),
    ]


def test_a_token_on_both_sides_of_a_marker_is_not_told() -> None:
    made = parse(QWEN3, tokenised(["<think>", "Hm</think>Yes", "!"]))
    assert [(c, t.id, t.text) for c, t in tokens_of(made)] == [
        *(("reasoning", 0, ""), ("reasoning", None, "Hm"), ("content", None, "Yes")),
        *(("content", 2, "!"), ("content", 9999, "")),
    ]


def test_tokens_that_share_a_text_are_not_read_twice() -> None:
    tokens = (make_token("[THINK]", 1), make_token("Hm", 2))
    shared = (tokens[0]._replace(text=""), tokens[1]._replace(text="[THINK]Hm"))
    made = parse(
        Parsers(reasoning="mistral"), [Delta(text="[THINK]Hm", tokens=shared), Delta(finish_reason="stop")]
    )
    assert said(made) == [("reasoning", "Hm")]
