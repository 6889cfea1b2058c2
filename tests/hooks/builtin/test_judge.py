"""The guard `judge`: a stream against a generative guard model that a test plays."""

import asyncio
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, GenerationRequest, RequestError, Token, TopLogprob
from engine.upstream.openai.engine import OpenAIEngine
from hooks import PromptTooLongError, emit, suspect
from hooks.builtin.judge import Judge
from hooks.builtin.judge_families.asking import UnclearError
from hooks.builtin.judge_families.family import AnswerError
from hooks.decisions.failure import HookError
from hooks.testing import play, stream_of
from tests.engine.upstream.conftest import fake_upstream
from tests.helpers import Script, examples, make_deltas, make_request, make_token, pipeline_of, text_of
from tests.helpers import guard_all as guarded_by
from tests.hooks.builtin.judges import ChatEngine, GuardEngine, Models, tokenizer_of
from tests.hooks.builtin.streams import cut, run, said

BOMB = "bomb"
TEXT = "Take some flour. Then build the bomb. Then rest.\n"


@pytest.fixture(autouse=True)
def mode() -> str:
    """In this process: the models are of this process."""
    return "in-process"


def if_bomb(unsafe: float, otherwise: float = 0.01) -> Callable[[str], Mapping[str, float]]:
    """Llama Guard's or a policy's answer: how likely `unsafe` is if a bomb is spoken of."""

    def answer(prompt: str) -> Mapping[str, float]:
        probability = unsafe if BOMB in prompt else otherwise
        return {"unsafe": probability, "safe": 1 - probability}

    return answer


def started(guard: Judge, engine: Any) -> Judge:
    """The guard with this engine, whoever starts it."""
    start = guard.start

    async def start_with_engine(models: Any = None) -> None:
        await start(Models(engine))

    guard.start = start_with_engine  # type: ignore[method-assign]
    asyncio.run(start_with_engine())
    return guard


def llama_guard(
    answer: Callable[[str], Mapping[str, float]] = if_bomb(0.9),  # noqa: B008 - it keeps no state
    text: str = "S9<|eot_id|>",
    **arguments: Any,
) -> tuple[Judge, GuardEngine]:
    engine = GuardEngine(tokenizer_of("llama-guard-3"), answer, lambda prompt: text)
    return started(Judge("org/llama-guard-3-8b", **arguments), engine), engine


def words(text: str) -> list[str]:
    return [f"{word} " for word in text.split(" ")]


def test_the_stream_ends_before_the_window_in_which_the_model_objects() -> None:
    guard, engine = llama_guard(window=4, first_window=4)
    outcome = run(guard, list(TEXT))
    released = text_of(outcome)
    assert TEXT.startswith(released)
    assert BOMB not in released
    assert "flour" in released
    assert outcome[-1].stop_reason == "unsafe"
    assert all("User: Hi\n\nAgent: Take" in prompt for prompt in engine.prompts)
    assert engine.prompts[-1].endswith("<|start_header_id|>assistant<|end_header_id|>\n\n")


def test_a_stream_without_an_offence_passes_untouched() -> None:
    guard, engine = llama_guard(window=8)
    assert said(guard, words("all is well in the world")) == "all is well in the world "
    assert {one.sampling.max_tokens for one in engine.requests} == {1}


@given(places=st.lists(st.integers(1, len(TEXT)), max_size=20), window=st.integers(1, 40))
@examples(25)
def test_nothing_leaves_that_no_verdict_covers(places: list[int], window: int) -> None:
    guard, engine = llama_guard(window=window)
    released = said(guard, cut(TEXT, places))
    judged = [prompt.split("Agent: ")[1].split("\n\n<END")[0] for prompt in engine.prompts]
    assert TEXT.startswith(released)
    assert released.strip() in ("", *(text for text in judged if BOMB not in text))


LONG = words("one two three four five six seven a bomb eight nine ten eleven a bomb twelve thirteen fourteen")


def joined(tokens: list[str], sizes: list[int]) -> list[Delta]:
    """Deltas of so many tokens, as they come to a guard that is slow. The last one has the rest."""
    deltas, left = [], [make_token(token, i) for i, token in enumerate(tokens)]
    for size in [*sizes, len(tokens)]:
        some, left = left[:size], left[size:]
        if some:
            deltas.append(Delta(text="".join(token.text for token in some), tokens=tuple(some)))
    return [*deltas, Delta(finish_reason="stop")]


@given(sizes=st.lists(st.integers(1, 20), max_size=8), window=st.integers(1, 8))
@pytest.mark.parametrize("action", ["terminate", "redact"])
@examples(25)
def test_an_offence_is_the_same_however_text_came_together(
    action: Any, sizes: list[int], window: int
) -> None:
    guard, _ = llama_guard(window=window, action=action)
    alone = asyncio.run(guarded_by(pipeline_of(guard), joined(LONG, [1] * len(LONG))))
    loaded = asyncio.run(guarded_by(pipeline_of(guard), joined(LONG, sizes)))
    assert text_of(loaded) == text_of(alone)
    assert loaded[-1].stop_reason == alone[-1].stop_reason
    assert BOMB not in text_of(alone)


def test_a_clean_stream_costs_no_more_questions_if_text_comes_together() -> None:
    clean = words("one two three four five six seven eight nine ten eleven")
    asked = []
    for sizes in ([1] * 11, [3, 8], [11]):
        guard, engine = llama_guard(window=4)
        asyncio.run(guarded_by(pipeline_of(guard), joined(clean, sizes)))
        asked.append(len(engine.prompts))
    assert asked == [4, 2, 1]  # windows of 1, 2, 4 and 4 tokens


def test_offences_in_reasoning_and_calls_are_found_too() -> None:
    guard, _ = llama_guard(window=4)
    assert BOMB not in said(guard, list("a bomb here"), "reasoning")
    assert BOMB not in said(guard, ['{"a": ', '"bomb"}'], "tool_call")


@pytest.mark.parametrize(
    ("arguments", "probability", "is_stopped"),
    [
        ({}, 0.49, False),
        ({}, 0.51, True),
        ({"threshold": 0.9}, 0.89, False),
        ({"threshold": 0.1}, 0.11, True),
        ({"categories": ["S9"]}, 0.6, True),
        ({"categories": ["S1"]}, 0.99, False),
        ({"thresholds": {"S9": 0.2}}, 0.3, True),
        ({"thresholds": {"S9": 0.95}}, 0.9, False),
    ],
)
def test_the_probability_and_the_category_decide(
    arguments: dict[str, Any], probability: float, is_stopped: bool
) -> None:
    guard, _ = llama_guard(if_bomb(probability), **arguments)
    assert (said(guard, ["a bomb"]) == "") is is_stopped


def test_categories_are_written_only_if_they_are_asked_for_and_could_matter() -> None:
    guard, engine = llama_guard(name_categories=True, threshold=0.8)
    assert run(guard, ["fine"])[-1].finish_reason == "stop"
    assert [one.sampling.max_tokens for one in engine.requests] == [1]
    assert run(guard, ["a bomb"])[-1].stop_reason == "S9"
    assert engine.prompts[-1].endswith("\n\nunsafe\n")
    plain, engine = llama_guard()
    assert run(plain, ["a bomb"])[-1].stop_reason == "unsafe"
    assert {one.sampling.max_tokens for one in engine.requests} == {1}


def test_categories_that_cannot_be_read_fail_the_request_closed() -> None:
    guard, _ = llama_guard(text="violence", name_categories=True)
    with pytest.raises(AnswerError):
        play(guard, ["a bomb"])


@pytest.mark.parametrize(("strict", "is_stopped"), [(True, True), (False, False)])
def test_controversial_counts_if_the_deployment_is_strict(strict: bool, is_stopped: bool) -> None:
    told = {" Safe": 0.2, " Unsafe": 0.2, " Controversial": 0.6}
    engine = GuardEngine(tokenizer_of("qwen3guard-gen"), lambda prompt: told)
    guard = started(Judge("org/qwen3guard-gen-8b", strict=strict), engine)
    assert (said(guard, ["well"]) == "") is is_stopped
    assert engine.prompts[-1].endswith("</think>\n\nSafety:")


def test_wildguard_s_earlier_answers_are_in_place_before_the_last() -> None:
    def answer(prompt: str) -> Mapping[str, float]:
        *_, line = prompt.split("\n")
        yes = {"Harmful request:": 0.9, "Response refusal:": 0.2, "Harmful response:": 0.7}[line]
        return {" yes": yes, " no": 1 - yes}

    engine = GuardEngine(tokenizer_of("wildguard"), answer)
    guard = started(Judge("allenai/wildguard"), engine)
    assert run(guard, ["well"])[-1].stop_reason == "unsafe"
    lines = "<|assistant|>\nHarmful request: yes\nResponse refusal: no\nHarmful response:"
    assert engine.prompts[-1].endswith(lines)


def test_criteria_are_asked_one_by_one() -> None:
    def answer(prompt: str) -> Mapping[str, float]:
        yes = 0.9 if "Criteria: violence" in prompt else 0.1
        return {" yes": yes, " no": 1 - yes}

    engine = GuardEngine(tokenizer_of("granite-guardian-3.3"), answer)
    guard = started(Judge("granite-guardian-3.3", criteria=["harm", "violence"]), engine)
    assert run(guard, ["well"])[-1].stop_reason == "violence"
    only_harm = started(Judge("granite-guardian-3.3"), engine)
    assert said(only_harm, ["well"]) == "well"
    with pytest.raises(ValueError, match=r"criteria: the family granite_guardian has harm, .* and not speed"):
        started(Judge("granite-guardian-3.3", criteria=["speed"]), engine)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("llama-guard-3", {"categories": ["S9", "Violence"]}),
        ("llama-guard-3", {"thresholds": {"S1,S2": 0.2}}),
        ("nemoguard", {"categories": ["violence"]}),
        ("granite-guardian-3.3", {"categories": ["violence"]}),
        ("wildguard", {"thresholds": {"violence": 0.2}}),
    ],
)
def test_a_name_that_no_offence_can_have_keeps_the_judge_from_starting(
    name: str, arguments: dict[str, Any]
) -> None:
    """Such a `categories` would let every offence pass. Granite Guardian is asked about harm alone here."""
    engine = GuardEngine(tokenizer_of(name), lambda prompt: {})
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}: the family .* has no category"):
        started(Judge(name, **arguments), engine)


def policy_file(folder: Path, text: str = "No bombs.") -> Path:
    path = folder / "policy.md"
    path.write_text(text)
    return path


def test_any_chat_model_follows_a_policy_in_words(tmp_path: Path) -> None:
    def answer(prompt: str) -> Mapping[str, float]:
        assert "No bombs." in prompt
        return (
            {"Deny": 0.6, "deny": 0.2, "Allow": 0.2} if BOMB in prompt.split("User:")[1] else {"allow": 0.9}
        )

    engine = GuardEngine(tokenizer_of("chatml"), answer)
    guard = started(Judge("chat", policy=policy_file(tmp_path), answers=["allow", "deny"]), engine)
    assert said(guard, ["a bomb"]) == ""
    assert said(guard, ["a cake"]) == "a cake"


def test_a_policy_in_words_has_no_categories(tmp_path: Path) -> None:
    """A threshold of its own for a category would never be used."""
    engine = GuardEngine(tokenizer_of("chatml"), lambda prompt: {"safe": 0.9})
    guard = Judge("chat", policy=policy_file(tmp_path), thresholds={"bombs": 0.2})
    with pytest.raises(ValueError, match="thresholds: the family policy has no category bombs"):
        started(guard, engine)


def test_a_system_message_has_its_own_turn_where_the_layout_has_one(tmp_path: Path) -> None:
    messages = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"})
    prompts = {}
    for name in ("chatml", "judge-turn", "granite-guardian-3.3"):
        engine = GuardEngine(tokenizer_of(name), lambda prompt: {" Safe": 1.0, "safe": 1.0, " no": 1.0})
        policy = policy_file(tmp_path) if name == "chatml" else None
        guard = started(Judge(name, policy=policy), engine)
        assert said(guard, ["well"], request=make_request(messages=messages)) == "well"
        prompts[name] = engine.prompts[-1]
    assert "System: Be kind.\n\nUser: Hi\n\nAssistant: well" in prompts["chatml"]
    assert prompts["judge-turn"].startswith("<|im_start|>system\nBe kind.<|im_end|>\n")
    assert "<|end_of_role|>Be kind.\n\nHi<|end_of_text|>" in prompts["granite-guardian-3.3"]


def test_an_empty_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="policy: the file is empty"):
        Judge("chat", policy=policy_file(tmp_path, " \n"))
    with pytest.raises(ValueError, match=r"policy: .*No such file"):
        Judge("chat", policy=tmp_path / "none")


def test_a_model_that_reasons_is_read_after_its_reasoning(tmp_path: Path) -> None:
    def write(prompt: str) -> str:
        violation = int(BOMB in prompt.split("User:")[1])
        return f"<|channel|>analysis<|message|>A 0?<|end|><|channel|>final<|message|>{violation}<|return|>"

    engine = GuardEngine(tokenizer_of("gpt-oss-safeguard"), lambda prompt: {}, write)
    guard = started(Judge("openai/gpt-oss-safeguard-20b", policy=policy_file(tmp_path)), engine)
    assert said(guard, ["a bo", "mb"]) == "a bo"
    assert said(guard, ["a cake"]) == "a cake"


def test_a_prompt_is_refused_before_the_model_sees_it() -> None:
    guard, engine = llama_guard(prompt="refuse")
    assert play(guard, stream_of("ok", prompt="a bomb?")).refused == "unsafe"
    assert engine.prompts[0].count("'User' messages") == 1
    assert play(guard, stream_of("ok", prompt="a cake?")).content == "ok"


def test_an_empty_conversation_is_refused_and_not_safe() -> None:
    guard, engine = llama_guard(prompt="refuse")
    offence = asyncio.run(guard.judge_prompt(make_request(messages=({"role": "user", "content": " "},))))
    assert offence is not None
    assert offence.entity == "empty"
    assert engine.prompts == []


def test_a_prompt_beyond_the_model_s_context_is_refused() -> None:
    guard, engine = llama_guard(prompt="refuse")
    code = "context_length_exceeded"
    engine.script = lambda request: [RequestError("too long", param="prompt", code=code)]
    assert play(guard, stream_of("ok", prompt="a cake?")).refused == "too_long"
    code = "another_fault"
    with pytest.raises(RequestError):
        play(guard, stream_of("ok", prompt="a cake?"))


def test_white_space_alone_is_not_asked_about() -> None:
    guard, engine = llama_guard()
    assert said(guard, [" ", "\n"]) == " \n"
    assert engine.prompts == []


@pytest.mark.parametrize(
    "told",
    [{}, {"safe": 0.3, "unsafe": 0.1}, {"safe": math.nan, "unsafe": 0.1}, {"safe": 1.9, "unsafe": 0.9}],
)
def test_a_model_that_answers_something_else_fails_the_request_closed(told: Mapping[str, float]) -> None:
    guard, _ = llama_guard(lambda prompt: told)
    with pytest.raises(HookError):
        run(guard, ["fine"])
    with pytest.raises(UnclearError):
        play(guard, ["fine"])


@pytest.mark.parametrize("error", [RequestError("too long", code="context_length_exceeded"), OSError("no")])
def test_a_model_that_fails_fails_the_request_closed(error: Exception) -> None:
    guard, engine = llama_guard()
    engine.script = lambda request: [error]
    with pytest.raises(HookError):
        run(guard, ["fine"])


@pytest.mark.parametrize(
    ("beyond", "error"), [("a cake?", PromptTooLongError), ("fine", RequestError), ("end", RequestError)]
)
def test_only_a_prompt_that_is_too_long_by_itself_is_the_caller_s_fault(
    beyond: str, error: type[Exception]
) -> None:
    """`beyond`: the text with which a conversation is too long for the model."""

    def answer(prompt: str) -> Mapping[str, float]:
        if beyond in prompt.partition("<BEGIN CONVERSATION>")[2].partition("<END")[0]:
            raise RequestError("too long", code="context_length_exceeded")
        return {"safe": 1.0}

    guard, _ = llama_guard(answer)
    with pytest.raises(error):
        play(guard, stream_of("fine, to the end", prompt="a cake?"))


def test_requests_keep_their_texts_apart_in_the_cache() -> None:
    guard, engine = llama_guard(window=1)
    for request_id in ("r1", "r2"):
        request = GenerationRequest(
            request_id=request_id, model="m", endpoint="completions", prompts=("Hi",), caller="c"
        )
        asyncio.run(guarded_by(pipeline_of(guard), make_deltas(["a ", "b ", "c"]), request))
    salts = {one.cache_salt for one in engine.requests}
    assert len(salts) == 2
    assert None not in salts
    assert {one.caller for one in engine.requests} == {"c"}
    (num_shared,) = {one.num_unsalted_tokens for one in engine.requests}
    shared = engine.tokenizer.decode(engine.requests[0].prompts[0][:num_shared])
    assert "S10: Hate." in shared
    assert "Hi" not in shared


def test_a_judge_after_a_cheap_guard_reads_the_whole_stream_once_it_is_suspect() -> None:
    guard, engine = llama_guard(window=4, only_when="suspect")
    cheap = Script(lambda chunk: suspect("odd") if "odd" in chunk.text else emit(chunk.pending))
    assert text_of(asyncio.run(_through(cheap, guard, words("all is well")))) == "all is well "
    assert engine.prompts == []
    released = text_of(asyncio.run(_through(cheap, guard, words("first fine then odd then a bomb"))))
    assert BOMB not in released
    assert "Agent: first fine then" in engine.prompts[0]
    assert "Agent: first fine then odd" in engine.prompts[-1]


def _emit(chunk: Any) -> Any:
    from hooks import emit

    return emit(chunk.pending)


async def _through(*guards_and_pieces: Any) -> Any:
    from tests.helpers import make_deltas

    *guards, pieces = guards_and_pieces
    return await guarded_by(pipeline_of(*guards), make_deltas(pieces))


def chat_guard(answer: Any, name: str = "llama-guard-3", **arguments: Any) -> tuple[Judge, ChatEngine]:
    engine = ChatEngine(answer)
    return started(Judge(name, **arguments), engine), engine


def test_a_guess_at_an_upstream_s_family_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tea.md").write_text("Talk of tea alone.")
    for known in ({"family": "llama_guard"}, {"policy": tmp_path / "tea.md"}):
        chat_guard(lambda messages: [], **known)
        assert not caplog.text
    chat_guard(lambda messages: [])
    assert "takes the upstream model llama-guard-3 for llama_guard, by its name alone" in caplog.text


def test_a_judge_that_knows_the_template_warns_of_no_guess(caplog: pytest.LogCaptureFixture) -> None:
    llama_guard()
    assert not caplog.text


def test_an_upstream_that_is_of_another_family_fails_closed() -> None:
    guard, _ = chat_guard(lambda messages: [("Safety", {"Safety": 0.999}), (":", {}), (" Safe", {})])
    with pytest.raises(UnclearError):
        play(guard, ["fine"])


def test_an_upstream_is_asked_over_chat_for_the_likeliest_tokens() -> None:
    def answer(messages: str) -> Any:
        if BOMB in messages:
            return [("\n\n", {"\n\n": 0.9}), ("unsafe", {"unsafe": 0.8, "safe": 0.2}), ("\n", {}), ("S9", {})]
        return [("safe", {"safe": 0.995, "\n": 0.001})]

    guard, engine = chat_guard(answer, name_categories=True)
    assert said(guard, ["a cake"]) == "a cake"
    assert run(guard, ["a bomb"])[-1].stop_reason == "S9"
    asked = engine.requests[-1]
    assert asked.messages == ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a bomb"})
    assert (asked.sampling.logprobs, asked.sampling.temperature) == (20, 0.0)


def test_a_verdict_in_two_tokens_is_known_by_its_first() -> None:
    guard, _ = chat_guard(lambda messages: [("un", {"un": 0.7, "safe": 0.3}), ("safe", {"safe": 1.0})])
    assert said(guard, ["well"]) == ""


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        [("I", {"I": 0.9, "unsafe": 0.05})],
        [("safe", {"safe": 0.9, "Safe": 0.05})],  # how likely is `unsafe`?
        [("safe", {})],
    ],
)
def test_an_upstream_s_answer_without_all_verdicts_fails_the_request_closed(tokens: Any) -> None:
    guard, _ = chat_guard(lambda messages: tokens)
    with pytest.raises(UnclearError):
        play(guard, ["fine"])


def test_an_upstream_s_logprob_that_cannot_be_fails_the_request_closed() -> None:
    guard, engine = chat_guard(lambda messages: [])
    top = (TopLogprob(None, b"safe", 1000.0), TopLogprob(None, b"unsafe", -1.0))
    engine.script = lambda request: [Delta(text="safe", tokens=(Token(None, "safe", b"safe", -0.1, top),))]
    with pytest.raises(UnclearError):
        play(guard, ["fine"])


def test_a_forced_beginning_is_looked_for_in_an_upstream_s_answer() -> None:
    told = {" Unsafe": 0.6, " Safe": 0.3, " Controversial": 0.1}
    tokens = [("Safety", {}), (":", {}), (" Unsafe", told), ("\n", {}), ("Categories:", {}), (" PII", {})]
    guard, _ = chat_guard(lambda messages: tokens, "qwen3guard-gen", name_categories=True)
    assert run(guard, ["well"])[-1].stop_reason == "PII"


async def test_a_server_that_speaks_openai_s_api_can_judge() -> None:
    def answer(body: dict[str, Any]) -> Any:
        unsafe = 0.8 if BOMB in str(body["messages"]) else 0.2
        entry = {"token": "\n\n", "bytes": [10, 10], "logprob": -0.1, "top_logprobs": []}
        told = {"unsafe": unsafe, "safe": 1 - unsafe}
        top = [{"token": one, "logprob": math.log(p), "bytes": None} for one, p in told.items()]
        verdict = {**top[0], "top_logprobs": top}
        for text, own in (("\n\n", entry), ("unsafe", verdict)):
            choice = {"index": 0, "delta": {"content": text}, "logprobs": {"content": [own]}}
            yield {"choices": [choice]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        yield b"data: [DONE]\n\n"

    async with fake_upstream() as upstream:
        upstream.script = answer
        engine = OpenAIEngine(upstream.url)
        await engine.start()
        guard = Judge("llama-guard-3")
        await guard.start(Models(engine))
        for text, wanted in (("a cake", "a cake"), ("a bomb", "")):
            assert text_of(await guarded_by(pipeline_of(guard), make_deltas([text]))) == wanted
        body = upstream.bodies[-1]
        assert (body["top_logprobs"], body["temperature"], body["max_tokens"]) == (20, 0.0, 64)
        upstream.script = lambda body: answer({"messages": []})  # never unsafe
        assert text_of(await guarded_by(pipeline_of(guard), make_deltas(["a bomb"]))) == "a bomb"
        await engine.aclose()


def test_a_family_without_a_chat_template_cannot_be_upstream() -> None:
    with pytest.raises(ValueError, match="no chat template"):
        chat_guard(lambda messages: [], "wildguard")


def test_a_model_whose_layout_leaves_out_texts_cannot_start() -> None:
    engine = GuardEngine(tokenizer_of("wildguard"), if_bomb(0.9))
    with pytest.raises(ValueError, match=r"model: .*no chat template"):
        started(Judge("llama-guard-3"), engine)
