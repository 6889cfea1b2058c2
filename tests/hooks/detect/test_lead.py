"""A text in pieces over several requests: matches that begin in the lead, and cuts that the client chose."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol import Delta, FinishReason, GenerationRequest, SamplingParams, Token
from hooks import Chunk, Decision, Verdict, emit
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import PhraseDetector, Phrases
from hooks.builtin.repetition import Repetition
from hooks.builtin.secrets import Secrets
from hooks.detect.lead import MAX_LEAD
from hooks.testing import assert_chunk_invariant, assert_never_released, play, stream_of
from tests.helpers import examples, guard_all, make_deltas, pipeline_of, text_of
from tests.hooks.builtin.streams import PLACES, cut
from tests.hooks.json.test_editing import EXPRESSIONS, JSON_LIKE

PHRASES = ["project bluebird", "hunter2", "bird song"]


def completion(*prompts: str | tuple[int, ...], **fields: Any) -> GenerationRequest:
    return GenerationRequest(
        request_id="r1", model="m", endpoint="completions", prompts=tuple(prompts), **fields
    )


def said(guard: Any, lead: str, output: str, **options: Any) -> str:
    return play(guard, stream_of(output, lead=lead, **options)).content


@pytest.mark.parametrize("mode", ["the kit's own"], indirect=True)
@pytest.mark.parametrize(
    ("lead", "output", "released"),
    [
        ("Say project blue", "bird now", "[phrase] now"),
        ("Say project", " bluebird", "[phrase]"),
        ("Say project b", "lueberry", "lueberry"),
        ("Say project bluebird", " is it", " is it"),
        ("Say project bluebird", "s are", "s are"),
        ("hunter2 project bluebird", "Good morning.", "Good morning."),
        # the output counts by itself as well, whatever stands before it
        ("x", "project bluebird", "[phrase]"),
        ("project ", "project bluebird", "[phrase]"),
        # a match from the lead meets another one
        ("project blue", "bird song", "[phrase]"),
        ("project blue", "bird hunter2", "[phrase] [phrase]"),
        # it is found after escapes and markup, as within an output
        (r"Say \u0070roject <b>blue", "bird</b> now", "[phrase]</b> now"),
    ],
)
def test_a_match_that_begins_in_the_lead_is_found(lead: str, output: str, released: str) -> None:
    assert said(Phrases(PHRASES), lead, output) == released  # contract 2.8
    assert_chunk_invariant(Phrases(PHRASES), stream_of(output, lead=lead), num_random=10)
    assert_chunk_invariant(Phrases(PHRASES), stream_of(output, lead=lead, is_cut=True), num_random=0)


def test_each_action_is_taken_on_the_part_in_the_output() -> None:
    lead, output = "Say project blue", "bird now"
    assert said(Phrases(PHRASES, action="suppress"), lead, output) == " now"
    released = play(Phrases(PHRASES, action="terminate", text="No."), stream_of(output, lead=lead))
    assert (released.content, released.finish_reason) == ("No.", "content_filter")
    whole = play(Phrases(PHRASES, action="terminate"), stream_of("Well.", lead="project bluebird"))
    assert (whole.content, whole.finish_reason) == ("Well.", "stop")


def test_a_private_key_that_begins_in_the_lead_is_withheld_to_its_end() -> None:
    lead = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKC" * 9
    output = "Q7zRt0" * 2000 + "\n-----END RSA PRIVATE KEY-----\nThat was it."
    released = said(Secrets(), lead, output)
    assert released.endswith("That was it.")
    assert "Q7z" not in released


def test_json_that_continues_a_lead_is_guarded_too() -> None:
    guard = Phrases(PHRASES)
    request = completion("Say project blue", extra={"response_format": {"type": "json_object"}})
    assert play(guard, stream_of("bird now", prompt=request)).content == "[phrase] now"
    assert play(guard, stream_of('{"a": "hunter2"}', prompt=request)).content == '{"a": "[phrase]"}'


def test_only_the_end_of_a_long_lead_is_searched() -> None:
    seen: list[int] = []

    class Counting(PhraseDetector):
        def scan(self, text: str, *args: Any, **more: Any) -> Any:
            seen.append(len(text))
            return super().scan(text, *args, **more)

    guard = Phrases(PHRASES)
    guard.detector = Counting(PHRASES)
    guard._searched.cache_clear()
    assert said(guard, "word " * 200_000 + "project blue", "bird") == "[phrase]"
    assert 0 < max(seen) <= MAX_LEAD + 10


def test_a_loop_in_the_prompt_is_the_callers() -> None:
    guard = Repetition(min_repeats=3, min_length=9, max_period=5)
    assert said(guard, "tea " * 9, "tea tea") == "tea tea"


@pytest.mark.parametrize("phrase", ["project bluebird", "Project Bluebird", "hunter2"])
@pytest.mark.parametrize("at_cut", ["withhold", "release"])
def test_asking_for_one_character_at_a_time_gives_no_phrase(phrase: str, at_cut: Any) -> None:
    guard = Phrases(PHRASES, at_cut=at_cut)
    had = "".join(said(guard, "Say " + phrase[:i], phrase[i], is_cut=True) for i in range(len(phrase)))
    assert had == ("" if at_cut == "withhold" else phrase[:-1]) + "[phrase]"


TEXTS = st.lists(
    st.sampled_from(
        ["project", " ", "blue", "bird", "hunter", "2", "song", "x", "<b>", "\\u0070", "s", "PROJECT", "."]
    ),
    max_size=8,
).map("".join)


def forbidden(lead: str, output: str) -> list[tuple[int, int]]:
    """The parts of the output that belong to a phrase in it, or in the text that it continues."""
    detector = Phrases(PHRASES).detector
    joined = [(m.start - len(lead), m.end - len(lead)) for m in detector.scan(lead + output)[0]]
    alone = [(m.start, m.end) for m in detector.scan(output)[0]]
    return [(max(0, a), b) for a, b in joined if b > 0] + alone


@given(lead=TEXTS, output=TEXTS, places=PLACES, finish=st.sampled_from(["stop", "length"]))
@example(lead="project ", output="bluebird", places=[3], finish="length")
@example(lead="project blue", output="bird song", places=[4], finish="stop")
@examples(300)
async def test_exactly_what_completes_a_phrase_is_withheld(
    lead: str, output: str, places: list[int], finish: FinishReason
) -> None:
    deltas = [*make_deltas(cut(output, places), finish=False), Delta(finish_reason=finish)]
    guard = Phrases(PHRASES, action="suppress", at_cut="release")
    released = text_of(await guard_all(pipeline_of(guard), deltas, completion(lead)))
    gone = {i for a, b in forbidden(lead, output) for i in range(a, b)}
    assert released == "".join(char for i, char in enumerate(output) if i not in gone)


@given(lead=TEXTS, output=TEXTS, rest=TEXTS, places=PLACES)
@example(lead="Say", output=" project", rest=" bluebird", places=[])
@examples(300)
async def test_no_beginning_of_a_phrase_is_released_at_a_cut(
    lead: str, output: str, rest: str, places: list[int]
) -> None:  # contract 3.12
    deltas = [*make_deltas(cut(output, places), finish=False), Delta(finish_reason="length")]
    guard = Phrases(PHRASES, action="suppress")
    released = text_of(await guard_all(pipeline_of(guard), deltas, completion(lead)))
    gone = {i for a, b in forbidden(lead, output + rest) for i in range(a, b)}
    allowed = "".join(char for i, char in enumerate(output) if i not in gone)
    assert is_part(released, allowed)


def is_part(text: str, whole: str) -> bool:
    """Whether `whole` without some characters is `text`."""
    rest = iter(whole)
    return all(char in rest for char in text)


JSON: dict[str, Any] = {"response_format": {"type": "json_object"}}


@given(
    patterns=EXPRESSIONS,
    lead=JSON_LIKE,
    output=JSON_LIKE,
    places=PLACES,
    action=st.sampled_from(["redact", "suppress", "terminate"]),
    finish=st.sampled_from(["stop", "length"]),
    extra=st.sampled_from([{}, JSON]),
)
@examples(300)
async def test_where_an_output_with_a_lead_is_cut_into_chunks_changes_nothing(
    patterns: list[str],
    lead: str,
    output: str,
    places: list[int],
    action: Any,
    finish: FinishReason,
    extra: dict[str, Any],
) -> None:
    guard = Patterns(["hunter2", *patterns], action=action, max_length=40)
    request = completion(lead, extra=extra)
    whole, pieces = [
        await guard_all(
            pipeline_of(guard), [*make_deltas(some, finish=False), Delta(finish_reason=finish)], request
        )
        for some in ([output], cut(output, places))
    ]
    assert text_of(pieces) == text_of(whole)
    assert pieces[-1].finish_reason == whole[-1].finish_reason


class Ends:
    def __init__(self) -> None:
        self.ends: list[tuple[str, bool]] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.is_final:
            self.ends.append((chunk.channel, chunk.is_cut))
        assert chunk.is_final or not chunk.is_cut
        return emit(chunk.pending)


EOS = Token(9, "", b"</s>", -0.5)


@pytest.mark.parametrize(
    ("end", "sampling", "is_cut"),
    [
        (Delta(finish_reason="length"), {}, True),
        (Delta(finish_reason="stop"), {}, False),
        (Delta(finish_reason="stop", stop_reason="x"), {"stop": ("x",)}, True),
        (Delta(finish_reason="stop", stop_reason=7), {"stop_token_ids": (7,)}, True),
        (Delta(finish_reason="stop", tokens=(EOS,)), {"stop": ("x",)}, False),
        (Delta(finish_reason="stop"), {"stop": ("x",)}, True),  # an upstream that does not tell
        (Delta(finish_reason="stop", tokens=(EOS._replace(id=None),)), {"stop": ("x",)}, True),
        (Delta(finish_reason="tool_calls"), {}, False),
        (Delta(finish_reason="tool_calls", stop_reason="x"), {"stop": ("x",)}, True),
        (Delta(finish_reason="tool_calls", stop_reason=7), {"stop_token_ids": (7,)}, True),
        (Delta(finish_reason="tool_calls", tokens=(EOS,)), {"stop": ("x",)}, False),
        (Delta(finish_reason="tool_calls"), {"stop": ("x",)}, True),  # an upstream that does not tell
        (Delta(finish_reason="content_filter"), {}, True),
        (Delta(finish_reason="stop", tokens=(EOS,), is_cut=True), {}, True),  # an upstream's other reason
    ],
)
async def test_a_hook_is_told_whether_the_client_chose_the_end(
    end: Delta, sampling: dict[str, Any], is_cut: bool
) -> None:  # contract 2.9
    hook = Ends()
    request = completion("Once", sampling=SamplingParams(**sampling))
    deltas = [Delta(text="Once", channel="echo"), Delta(text="hm", channel="reasoning"), Delta(text="a"), end]
    await guard_all(pipeline_of(hook), deltas, request)
    assert sorted(hook.ends) == [("content", is_cut), ("echo", False), ("reasoning", is_cut)]


async def test_a_stop_that_only_an_upstream_knows_is_a_cut() -> None:
    hook = Ends()
    request = completion("Once", extra={"stop_regex": "b.*"})
    await guard_all(pipeline_of(hook), [Delta(text="a"), Delta(finish_reason="stop")], request)
    assert hook.ends == [("content", True)]


async def test_every_end_is_a_cut_if_a_field_of_the_client_steers_the_end() -> None:  # contract 2.9
    hook = Ends()
    end = Delta(finish_reason="stop", tokens=(EOS,))
    await guard_all(pipeline_of(hook), [Delta(text="a"), end], completion("Once", steers_end=True))
    assert hook.ends == [("content", True)]


async def test_streams_that_continue_nothing_have_no_lead() -> None:  # contract 2.8
    leads: dict[tuple[int, str], str] = {}

    def look(chunk: Chunk) -> Verdict:
        leads[chunk.output_index, chunk.channel] = chunk.lead
        return emit(chunk.pending)

    request = completion("one", "two", sampling=SamplingParams(n=2))
    deltas = [
        delta
        for i in range(4)
        for delta in (
            Delta(index=i, text="p", channel="echo"),
            Delta(index=i, text="a"),
            Delta(index=i, finish_reason="stop"),
        )
    ]
    await guard_all(pipeline_of(look), deltas, request)
    assert [leads[i, "content"] for i in range(4)] == ["one", "one", "two", "two"]
    assert {leads[i, "echo"] for i in range(4)} == {""}


@pytest.mark.parametrize(
    ("messages", "lead"),
    [
        ([{"role": "user", "content": "Hi"}], ""),
        ([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}], "Well"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"text": "b"}, {}]}], "ab"),
        ([{"role": "assistant", "content": None}], ""),
        ([{"role": "assistant", "content": "Well"}, {"role": "user", "content": "Hi"}], ""),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": None}], "a"),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], "ab"),
        ([{"role": "assistant", "reasoning_content": "a", "content": "c", "refusal": "b"}], "abc"),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "a"}]}], "a"),
    ],
)
def test_the_assistants_messages_at_the_end_are_the_lead(messages: list[dict[str, Any]], lead: str) -> None:
    assert lead_seen(messages) == lead  # contract 2.8


def lead_seen(messages: list[dict[str, Any]], extra: dict[str, Any] | None = None) -> str:
    """The lead of an answer to these messages, as a hook reads it."""
    seen: set[str] = set()

    def look(chunk: Chunk) -> Verdict:
        seen.add(chunk.lead)
        return emit(chunk.pending)

    stream = stream_of("a", prompt=messages)
    play(look, replace(stream, request=replace(stream.request, extra=extra or {})))
    (lead,) = seen
    return lead


HI = {"role": "user", "content": "Hi"}
CONTINUING: list[dict[str, Any]] = [
    {"continue_final_message": True},
    {"add_generation_prompt": False},
    {"chat_template": "{{ messages[-1].content }}"},
    {"chat_template_kwargs": {"continue_final_message": True}},
    {"chat_template_kwargs": {"add_generation_prompt": None}},
]


@pytest.mark.parametrize("role", ["user", "system", "developer", "tool", "function", "assistant"])
@pytest.mark.parametrize("extra", CONTINUING)
def test_a_message_that_the_output_continues_is_the_lead_whoever_wrote_it(
    extra: dict[str, Any], role: str
) -> None:  # contract 2.8
    said = {"role": "system" if role != "system" else "user", "content": "No."}
    assert lead_seen([said, {"role": role, "content": "It is "}], extra) == "It is "
    parts = [{"type": "text", "text": "It "}, {"type": "text", "text": "is "}]
    assert lead_seen([said, {"role": role, "content": parts}], extra) == "It is "
    again = {"role": role, "content": None}
    assert lead_seen([said, {"role": role, "content": "It is "}, again], extra) == "It is "


@pytest.mark.parametrize("field", ["prefix", "partial"])
def test_a_message_that_is_marked_as_one_to_continue_is_the_lead(field: str) -> None:  # contract 2.8
    assert lead_seen([{"role": "user", "content": "It is ", field: True}]) == "It is "
    assert lead_seen([{"role": "user", "content": "It is ", field: False}]) == ""


@pytest.mark.parametrize(
    "extra",
    [
        {"continue_final_message": False, "add_generation_prompt": True},
        {"chat_template_kwargs": {"enable_thinking": False, "add_generation_prompt": True}},
        {"guided_json": {"continue": True}},
    ],
)
def test_a_message_that_an_answer_follows_is_no_lead(extra: dict[str, Any]) -> None:  # contract 2.8
    assert lead_seen([HI], extra) == ""


def test_arguments_of_tool_calls_are_in_the_lead_in_front_of_the_content() -> None:  # contract 2.8
    calls = [
        {"type": "function", "function": {"name": "f", "arguments": text}} for text in ("[1]", '{"a": "b')
    ]
    calling = {"role": "assistant", "content": None, "tool_calls": calls}
    for extra in (None, *CONTINUING):
        assert lead_seen([HI, calling], extra) == '[1]{"a": "b'
        assert lead_seen([HI, {**calling, "content": "It is "}], extra) == '[1]{"a": "bIt is '


def test_what_is_whole_at_a_cut_is_acted_on_as_ever() -> None:
    stream = stream_of("Say project bluebird", is_cut=True)
    assert play(Phrases(PHRASES), stream).content == "Say [phrase]"
    ended = play(Phrases(PHRASES, action="terminate"), stream)
    assert (ended.content, ended.finish_reason) == ("Say ", "content_filter")
    assert said(Patterns({"number": r"\d{3,5}"}), "", "12 345 ab 67", is_cut=True) == "12 [number] ab "
    assert (
        said(Patterns({"number": r"\d{3,5}"}), "", "12 345 ab 678", is_cut=True) == "12 [number] ab [number]"
    )


def test_a_beginning_is_withheld_before_the_match_that_ends_the_answer() -> None:
    guard = Patterns({"long": "ab{1,9}c", "short": "bb"}, action="terminate")
    released = play(guard, stream_of("x abb", is_cut=True))
    assert (released.content, released.finish_reason) == ("x ", "content_filter")


async def test_a_listener_hears_what_was_withheld_at_a_cut() -> None:
    class Clerk(Phrases):
        told: list[Decision]

        def on_decision(self, decision: Decision) -> None:
            self.told.append(decision)

    clerk = Clerk(PHRASES)
    clerk.told = []
    await guard_all(
        pipeline_of(clerk), [*make_deltas(["Say proj"], finish=False), Delta(finish_reason="length")]
    )
    assert [(d.action, d.reason, d.offset, d.withheld) for d in clerk.told] == [
        ("redact", "at_cut", 4, "proj")
    ]


@pytest.mark.parametrize("mode", ["the kit's own"], indirect=True)
@pytest.mark.parametrize(
    "written", ['{"to": "Project', r'{"to": "\u0050roject blu\u00', '{"a": 4111, "b": 41']
)
def test_arguments_that_are_cut_give_no_beginning(written: str) -> None:
    guard = Phrases([*PHRASES, "4111"])
    released = play(guard, stream_of(list(written), channel="tool_call", is_cut=True))
    ((_, arguments),) = released.tool_calls
    assert arguments in ('{"to": "', '{"a": "[phrase]", "b": ')
    assert_chunk_invariant(guard, stream_of(list(written), channel="tool_call", is_cut=True))
    assert json.dumps(arguments)


def test_the_models_own_end_releases_what_was_held() -> None:
    assert said(Phrases(PHRASES), "", "Say project blue") == "Say project blue"


def test_the_kits_assertions_take_a_lead() -> None:
    assert_never_released(Phrases(PHRASES), stream_of("It is project bluebird", is_cut=True), "bluebird")
    with pytest.raises(AssertionError, match="is released"):
        assert_never_released(
            Phrases(PHRASES, at_cut="release"), stream_of("It is project blue", is_cut=True), "project blue"
        )
