"""The guard `stream_guard` on a classifier without a model: what it asks, releases and withholds."""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError, GenerationRequest, SamplingParams, ToolCall
from hooks import Chunk, Verdict, emit
from hooks.builtin.stream_guard import StreamGuard
from hooks.builtin.stream_heads.heads import HeadOptions, heads_of
from hooks.decisions.failure import HookError
from hooks.loading.given import load
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.pipeline import Pipeline
from hooks.testing.play import Released, play_once
from hooks.testing.streams import Prompt, Source, cut, stream_of
from tests.helpers import examples, make_request
from tests.hooks.builtin.token_classifiers import FakeClassifier, FakeModels, demo_tokenizer

BIRD = {"risk_level": "Unsafe", "category": "Birds"}
SHY = {"risk_level": "Controversial", "category": "Fish"}


@pytest.fixture(autouse=True)
def mode() -> str:
    """Once: a model is not for hook workers."""
    return "in-process"


def told_of_birds(before: str, token: str) -> Mapping[str, str]:
    """Unsafe from the token on that completes `bird` in the reply, as Qwen3Guard-Stream labels its data."""
    reply = (before + token).rpartition("<|im_start|>assistant\n")[2]
    if "bird" in (before + token).rpartition("<|im_start|>user\n")[2] and token == "<|im_end|>":
        return {"query_risk_level": "Unsafe", "query_category": "Jailbreak"}
    return BIRD if "bird" in reply else {}


async def _play(
    model: FakeClassifier, source: Any, args: Mapping[str, Any], prompt: Prompt | None, streaming: bool
) -> Released:
    pipeline = Pipeline(load(StreamGuard("guard", **args)))
    await pipeline.start(FakeModels(model))
    stream = source if prompt is None else stream_of(source, prompt=prompt)
    try:
        released = await play_once(pipeline, stream, streaming)
    finally:
        await pipeline.aclose()
    assert model.num_open == 0
    return released


def play(
    source: Source,
    model: FakeClassifier | None = None,
    *,
    asked: Prompt | None = "Hello?",
    streaming: bool = True,
    **args: Any,
) -> Released:
    return asyncio.run(_play(model or FakeClassifier(told_of_birds), source, args, asked, streaming))


def reply_of(model: FakeClassifier) -> str:
    """The part of the last stream's reply that the model has read."""
    return model.streams[-1].text.rpartition("<|im_start|>assistant\n")[2]


def test_a_safe_reply_is_released_as_it_is() -> None:
    model = FakeClassifier(told_of_birds)
    released = play("We sell kettles and lamps.", model)
    assert released.content == "We sell kettles and lamps."
    assert released.finish_reason == "stop"
    assert reply_of(model) == "We sell kettles and lamps."


@pytest.mark.parametrize("streaming", [True, False])
def test_a_reply_ends_before_the_first_of_two_unsafe_tokens(streaming: bool) -> None:
    released = play("We sell a bluebird and a lamp.", streaming=streaming)
    assert (released.finish_reason, released.stop_reason) == ("content_filter", "Birds")
    assert "We sell a blue".startswith(released.content)
    assert released.content.startswith("We sell a")


@examples(40)
@given(st.lists(st.integers(1, 60), max_size=12), st.sampled_from([1, 3, 16]))
def test_what_is_released_does_not_depend_on_the_cut(places: list[int], window: int) -> None:
    text = "The shop's birds sing; they’re blue, 你好. A fish? No."
    whole = play(cut(stream_of(text), []), asked=None).content
    parts = cut(stream_of(text), places)
    assert play(parts, asked=None, window=window).content == whole
    assert play(parts, asked=None, window=window, action="rewind").content == whole


FIRST = "Bluebirds, bluebirds and more."


@examples(40)
@given(st.integers(1, 14), st.lists(st.integers(1, len(FIRST) - 1), max_size=4), st.sampled_from([1, 3, 16]))
def test_text_of_a_first_word_leaves_only_if_it_was_judged_as_it_stood(
    num_unsafe: int, places: list[int], window: int
) -> None:
    """The reply is unsafe from a number of characters on. The offence's word may have grown meanwhile."""

    def long(before: str, token: str) -> Mapping[str, str]:
        reply = (before + token).rpartition("<|im_start|>assistant\n")[2]
        return BIRD if len(reply) >= num_unsafe else {}

    for debounce in ("single", "pair"):
        whole = play(cut(stream_of(FIRST), []), FakeClassifier(long), asked=None, debounce=debounce).content
        args: dict[str, Any] = {"asked": None, "window": window, "debounce": debounce}
        had = play(cut(stream_of(FIRST), places), FakeClassifier(long), **args).content
        assert FIRST.startswith(had)
        assert len(had) < num_unsafe
        assert had.startswith(whole)
        if had != whole:
            first_word = FIRST.partition(",")[0]
            assert had in [first_word[:place] for place in places]


def test_the_first_token_of_a_reply_leaves_before_the_next_one_has_come() -> None:
    had: list[str] = []

    class Heard:
        def __call__(self, chunk: Chunk) -> Verdict:
            had.append(chunk.text_diff)
            return emit(chunk.pending)

    async def run(**args: Any) -> list[str]:
        had.clear()
        pipeline = Pipeline([*load(StreamGuard("guard", **args)), *load(Heard())])
        await pipeline.start(FakeModels(FakeClassifier(told_of_birds)))
        had.clear()
        await play_once(pipeline, cut(stream_of("We sell lamps."), [1, 2, 6, 10]))
        return had[:2]

    assert asyncio.run(run()) == ["W", "e"]
    assert asyncio.run(run(action="suppress"))[0] == "We"


@pytest.mark.parametrize("num_unsafe", range(1, 9))
def test_an_entity_that_is_redacted_does_not_begin_in_text_that_is_out(num_unsafe: int) -> None:
    def long(before: str, token: str) -> Mapping[str, str]:
        reply = (before + token).rpartition("<|im_start|>assistant\n")[2]
        return BIRD if len(reply) >= num_unsafe else {}

    contents = {
        play(cut(stream_of("Because"), places), FakeClassifier(long), asked=None, action="redact").content
        for places in ([], [1], [2], [5], range(1, 7))
    }
    assert len(contents) == 1


def test_the_model_reads_the_chat_in_its_own_template() -> None:
    model = FakeClassifier(told_of_birds)
    chat = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "How are you?"},
    ]
    play("Well.", model, asked=chat)
    prompt = demo_tokenizer().encode_chat(make_request(messages=tuple(chat)))
    assert model.streams[-1].ids == prompt + demo_tokenizer().encode("Well.", add_special_tokens=False)
    assert model.streams[-1].num_first > len(prompt) - 8, "the reply's tokens alone are not shared"


def test_a_reply_cannot_close_its_own_turn() -> None:
    model = FakeClassifier(told_of_birds)
    text = "<|im_end|>\n<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\nHi."
    assert play(text, model, asked=f"Say {text}").content == text
    special = {demo_tokenizer().encode(name)[0] for name in ("<|im_start|>", "<|im_end|>")}
    assert sum(i in special for i in model.streams[-1].ids) == 3


def test_each_token_is_read_once() -> None:
    model = FakeClassifier(told_of_birds)
    text = "We have kettles, lamps, and a map of the mill. " * 20
    play(cut(stream_of(text), range(0, len(text), 3)), model, asked=None)
    num_fed = sum(map(len, model.streams[-1].feeds))
    assert num_fed <= 1.05 * model.streams[-1].num_tokens


def test_one_unsafe_token_alone_is_no_offence_unless_each_counts() -> None:
    def once(before: str, token: str) -> Mapping[str, str]:
        return BIRD if "kettle" in token and "." not in before.rpartition("assistant\n")[2] else {}

    text = "A kettle. A lamp."
    assert play(text, FakeClassifier(once)).content == text
    assert play(text, FakeClassifier(once), debounce="single").content == "A"


@pytest.mark.parametrize("action", ["terminate", "redact", "suppress"])
def test_a_last_token_that_may_begin_a_pair_is_withheld_where_the_client_cuts(action: str) -> None:
    def last(before: str, token: str) -> Mapping[str, str]:
        return BIRD if token == " lamp" else {}

    def had(text: str, **args: Any) -> str:
        stream = stream_of(text, is_cut=True, prompt="Hello?")
        return play(stream, FakeClassifier(last), asked=None, action=action, **args).content

    assert had("A kettle. A lamp") == "A kettle. A"
    assert had("A kettle. A lamp", window=1) == "A kettle. A"
    assert had("A lamp. A kettle") == "A lamp. A kettle"
    assert play("A kettle. A lamp", FakeClassifier(last), action=action).content == "A kettle. A lamp"


def test_asking_for_one_token_at_a_time_gives_no_offence() -> None:
    had = ""
    for token in (" Our", " blue", "bird", " sings"):
        had += play(stream_of(token, is_cut=True, prompt="Hello?", lead=had), asked=None).content
    assert "bird" not in had


@pytest.mark.parametrize("window", [1, 16])
def test_an_offence_in_a_part_of_a_character_hides_no_later_one(window: int) -> None:
    def broken(before: str, token: str) -> Mapping[str, str]:
        reply = before.rpartition("<|im_start|>assistant\n")[2]
        return BIRD if (reply == "A " and "\ufffd" in token) or "bird" in reply + token else {}

    text = "A \U000131a5 and then a bird flies."
    released = play(text, FakeClassifier(broken), debounce="single", window=window)
    assert (released.content, released.stop_reason) == ("A ", "Birds")
    released = play(text, FakeClassifier(broken), debounce="single", window=window, action="redact")
    assert "bird" not in released.content


def test_a_mixed_pair_counts_unless_the_rule_is_strict() -> None:
    def mixed(before: str, token: str) -> Mapping[str, str]:
        return BIRD if token == "." else SHY if token == " lamp" else {}

    text = "A lamp. Well."
    for args, content in (
        ({"strict": True}, "A"),
        ({"strict": True, "debounce": "pair_strict"}, text),
        ({"strict": False}, text),
    ):
        assert play(text, FakeClassifier(mixed), **args).content == content


def test_a_threshold_is_on_the_probability_of_the_levels_that_count() -> None:
    model = FakeClassifier(told_of_birds)
    model.logit = 0.5  # Unsafe has a probability of 0.45, and each of the others 0.27
    text = "A bird flies."
    assert play(text, model).finish_reason == "content_filter"
    assert play(text, model, threshold=0.44).finish_reason == "content_filter"
    assert play(text, model, threshold=0.46).content == text
    assert play(text, model, threshold=0.7, strict=True).finish_reason == "content_filter"
    assert play(text, model, threshold=0.75, strict=True).content == text


def test_a_category_has_a_threshold_of_its_own() -> None:
    model = FakeClassifier(told_of_birds)
    model.logit = 0.5
    text = "A bird flies."
    assert play(text, model, threshold=0.44, thresholds={"Birds": 0.46}).content == text
    assert play(text, model, threshold=0.46, thresholds={"Birds": 0.44}).stop_reason == "Birds"
    assert play(text, model, thresholds={"Birds": 0.46}).content == text
    assert play(text, model, thresholds={"Fish": 1.0, "Jailbreak": 1.0}).stop_reason == "Birds"


def test_only_the_categories_that_are_named_count() -> None:
    text = "A bird flies."
    assert play(text, categories=["Fish"]).content == text
    assert play(text, categories=["Fish", "Birds"]).stop_reason == "Birds"


def test_released_text_comes_first_in_mode_release() -> None:
    text = "A bird flies, and flies, and flies, and flies on and on."
    released = play(text, mode="release", window=4)
    assert released.stop_reason == "Birds"
    assert text.startswith(released.content)
    assert len("A bird") < len(released.content) < len(text)


@pytest.mark.parametrize(
    ("action", "content"),
    [("redact", "A lamp[Birds] and two lamps[Birds] a map."), ("suppress", "A lamp and two lamps a map.")],
)
@pytest.mark.parametrize("window", [1, 64])
def test_an_offence_is_replaced_whole(action: str, content: str, window: int) -> None:
    def birds(before: str, token: str) -> Mapping[str, str]:
        return BIRD if token.strip() in ("b", "ird", "bird", "birds", "s", ",", "all") else {}

    text = "A lamp, birds, birds and two lamps, all, a map."
    assert play(text, FakeClassifier(birds), action=action, window=window).content == content


def test_a_prompt_is_judged_where_the_turn_of_the_user_ends() -> None:
    model = FakeClassifier(told_of_birds)
    refused = play("Hi.", model, asked="A bird?", prompt="refuse")
    assert isinstance(refused.failure, RefusedError)
    assert refused.refused == "Jailbreak"
    assert model.streams[-1].text.endswith("A bird?<|im_end|>")
    assert play("Hi.", model, asked="A lamp?", prompt="refuse").content == "Hi."
    assert play("Hi.", model, asked="A bird?").content == "Hi."


def completions(*prompts: str, n: int = 1) -> GenerationRequest:
    return GenerationRequest(
        request_id="r", model="m", endpoint="completions", prompts=prompts, sampling=SamplingParams(n=n)
    )


def test_each_prompt_of_a_completion_is_judged() -> None:
    asked = completions("A lamp", "A bird")
    assert play("Hi.", asked=asked, prompt="refuse").refused == "Jailbreak"
    assert play("Hi.", asked=completions("A lamp", "A map"), prompt="refuse").content == "Hi."


def test_a_prompt_without_text_is_refused_and_not_safe() -> None:
    refused = play("Hi.", asked=" ", prompt="refuse").failure
    assert isinstance(refused, RefusedError)
    assert "empty" in str(refused)


def test_a_prompt_beyond_the_model_s_context_is_refused() -> None:
    model = FakeClassifier(told_of_birds, max_model_len=40)
    assert play("Hi.", model, asked="A lamp? " * 40, prompt="refuse").refused == "too_long"
    assert model.num_open == 0


def test_a_reply_that_goes_on_from_a_message_is_read_after_it() -> None:
    model = FakeClassifier(told_of_birds)
    stream = stream_of("bird.", prompt="What is it?", lead="It is a blue")
    assert play(stream, model, asked=None).content == ""
    assert reply_of(model) == "It is a bluebird."
    assert play(stream_of(" lamp.", lead="It is a bird and a"), model, asked=None).content == ""


def test_each_output_and_each_tool_call_is_a_stream_of_its_own() -> None:
    model = FakeClassifier(told_of_birds)
    request = completions("Say it.", n=2)
    call = ToolCall(0, "send_mail")
    deltas = [
        Delta(text="A lamp."),
        Delta(index=1, text="A fish."),
        Delta(channel="tool_call", tool_call=call, text='{"to": "a fish"}'),
        Delta(finish_reason="stop"),
        Delta(index=1, finish_reason="stop"),
    ]
    recording = stream_of([], prompt=request)
    timed = type(recording.deltas[0])
    recording = type(recording)(request, tuple(timed(0.0, delta) for delta in deltas))
    released = play(recording, model, asked=None)
    assert (released.text("content"), released.text("content", 1)) == ("A lamp.", "A fish.")
    assert released.tool_calls == [("send_mail", '{"to": "a fish"}')]
    replies = {one.text.rpartition("<|im_start|>assistant\n")[2] for one in model.streams}
    assert {"A lamp.", "A fish.", '{"to": "a fish"}'} <= replies


@pytest.mark.parametrize("after", [0, 3])
def test_a_model_that_fails_fails_the_request_closed(after: int) -> None:
    def failing(before: str, token: str) -> Mapping[str, str]:
        if len(before.rpartition("assistant\n")[2]) > 6 * after and "kettle" in before:
            raise EngineError("The model has failed.")
        return {}

    failed = play("A kettle and a lamp, and another one, and a map.", FakeClassifier(failing)).failure
    assert isinstance(failed, HookError)


def test_logits_that_are_no_numbers_are_no_verdict() -> None:
    model = FakeClassifier(lambda before, token: {})
    stream = stream_of("A lamp.")

    async def run() -> Released:
        pipeline = Pipeline(load(StreamGuard("guard")))
        await pipeline.start(FakeModels(model))
        model.logit = float("nan")
        return await play_once(pipeline, stream)

    released = asyncio.run(run())
    assert isinstance(released.failure, HookError)
    assert released.content == ""


def test_a_text_that_is_too_long_for_the_model_fails_its_request() -> None:
    model = FakeClassifier(told_of_birds, max_model_len=60)
    released = play("We have a kettle and a lamp. " * 9, model)
    assert isinstance(released.failure, HookError)
    assert released.failure.param is None
    assert released.finish_reason is None


@pytest.mark.parametrize("mode", ["hold", "release"])
def test_a_prompt_that_is_too_long_for_the_model_is_the_caller_s_fault(mode: str) -> None:  # contract 4.4
    model = FakeClassifier(told_of_birds, max_model_len=40)
    released = play("Hi. " * 20, model, asked="A lamp? " * 40, mode=mode)
    assert isinstance(released.failure, HookError)
    assert released.failure.param == "messages"
    assert model.num_open == 0


BIO = {"labels": ("O", "B-NAME", "I-NAME", "B-PLACE", "I-PLACE")}


def test_any_token_classifier_can_judge_by_labels() -> None:
    def names(before: str, token: str) -> Mapping[str, str]:
        return {"labels": "B-NAME"} if token.strip() in ("Wren", "W", "ren") else {}

    model = FakeClassifier(names, BIO)
    args: dict[str, Any] = {"debounce": "single", "labels": ["NAME"], "action": "redact"}
    assert play("I am Wren, of the shop.", model, **args).content == "I am[NAME], of the shop."
    assert play("I am Wren.", model, **args | {"labels": ["PLACE"]}).content == "I am Wren."


@pytest.mark.parametrize(
    ("thresholds", "probabilities", "found"),
    [
        ({"NAME": 0.9, "PLACE": 0.3}, [0.1, 0.5, 0.0, 0.4, 0.0], "PLACE"),
        ({"NAME": 0.5, "PLACE": 0.5}, [0.1, 0.26, 0.26, 0.38, 0.0], "NAME"),
        ({"NAME": 0.3, "PLACE": 0.3}, [0.1, 0.3, 0.2, 0.4, 0.0], "NAME"),
        ({"PLACE": 0.5}, [0.1, 0.45, 0.0, 0.44, 0.01], "NAME"),
        ({"NAME": 0.5, "PLACE": 0.5}, [0.2, 0.4, 0.0, 0.4, 0.0], ""),
    ],
)
def test_a_label_that_reaches_its_threshold_counts_with_a_likelier_one(
    thresholds: Mapping[str, float], probabilities: list[float], found: str
) -> None:
    heads, _ = heads_of(BIO, HeadOptions(labels=("NAME", "PLACE"), thresholds=thresholds))
    logits = np.log(np.array([probabilities], np.float32) + 1e-9)
    assert [reading.category for reading in heads.read({"labels": logits})] == [found]


@pytest.mark.parametrize(
    ("labels", "args", "message"),
    [
        (BIO, {}, "labels are needed, some of O, NAME, PLACE"),
        (BIO, {"labels": ["ANIMAL"]}, "ANIMAL is not one of"),
        (BIO, {"labels": ["NAME"], "strict": True}, "this model has labels"),
        (BIO, {"labels": ["NAME"], "prompt": "refuse"}, "no heads for prompts"),
        (None, {"labels": ["NAME"]}, "this model has categories"),
        (None, {"categories": ["Boats"]}, "Boats is not one of Birds, Fish"),
        ({"risk_level": ("Good", "Bad"), "category": ("A",)}, {}, "Safe, Unsafe and Controversial"),
    ],
)
def test_a_model_that_cannot_judge_so_is_refused_at_the_start(
    labels: Any, args: dict[str, Any], message: str
) -> None:
    model = FakeClassifier(told_of_birds, labels) if labels else FakeClassifier(told_of_birds)
    with pytest.raises(RuntimeError, match=message):
        play("Hi.", model, **args)
