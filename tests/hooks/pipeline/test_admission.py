"""A hook with `on_request` lets a prompt go on, rewrites or refuses it, before the engine is asked."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from engine.protocol import Delta, GenerationRequest, RequestError, SamplingParams, Usage
from engine.upstream.openai.request import request_body
from hooks import Chunk, Refusal, Verdict, emit, hold, prompt_texts, refuse, terminate, with_prompt_texts
from hooks.decisions.failure import HookError
from hooks.loading.loader import HookLoadError, HookSpec, LoadedHook, load_hook
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.pipeline import Pipeline
from tests.helpers import (
    Script,
    Source,
    finish_of,
    guard_all,
    make_deltas,
    make_request,
    pipeline_of,
    text_of,
    verdicts_of,
)

Answer = GenerationRequest | Refusal


class Reads(Script):
    """Answers a prompt with what it is told to, and remembers what it was shown."""

    def __init__(
        self,
        on_request: Callable[[GenerationRequest], Any] = lambda request: request,
        answer: Callable[[Chunk], Any] = lambda chunk: emit(chunk.pending),
    ) -> None:
        super().__init__(answer)
        self.read = on_request
        self.requests: list[GenerationRequest] = []

    def on_request(self, request: GenerationRequest) -> Answer:
        self.requests.append(request)
        answer: Answer = self.read(request)
        return answer


class ReadsLater(Reads):
    async def on_request(self, request: GenerationRequest) -> Answer:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().on_request(request)


def saying(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def louder(request: GenerationRequest) -> GenerationRequest:
    return with_prompt_texts(request, lambda text: text.text + "!")


def contents(request: GenerationRequest) -> list[str]:
    return [text.text for text in prompt_texts(request)]


@pytest.mark.parametrize("reads", [Reads, ReadsLater])
async def test_the_engine_is_asked_what_the_hooks_made_of_the_request_in_order(reads: type[Reads]) -> None:
    """Contract 8.1, 8.7."""
    first, second, plain = reads(louder), Reads(louder), Script(lambda c: emit(c.pending))
    source = Source(make_deltas(["a"]))
    pipeline = pipeline_of(first, plain, second)
    request = make_request(messages=saying("Hi"), user="u")
    assert text_of(await guard_all(pipeline, source, request)) == "a"
    assert [contents(r) for r in (*first.requests, *second.requests)] == [["Hi"], ["Hi!"]]
    assert [replace(r, user="u") for r in source.requests] == [replace(request, messages=saying("Hi!!"))]
    assert verdicts_of(pipeline)["hook0"] == {"rewrite_prompt": 1, "emit": 2}


@pytest.mark.parametrize("in_shadow", [False, True])
async def test_an_upstream_gets_nothing_that_no_hook_is_shown(in_shadow: bool) -> None:  # contract 8.1, 8.6
    pipeline = shadowed(reader := Reads()) if in_shadow else pipeline_of(reader := Reads())
    asked = replace(make_request(user="ann"), cache_salt="sesame", metadata={"to": "bob"})
    source, other = Source(make_deltas(["a"])), Source(make_deltas(["a"]))
    await guard_all(pipeline, source, asked)
    await guard_all(pipeline, other, replace(asked, user="zoe"))
    (first,), (second,) = source.requests, other.requests
    if in_shadow:
        assert first == asked
        return
    assert replace(first, user="ann", cache_salt="sesame", metadata={"to": "bob"}) == asked
    assert not {"ann", "sesame", "bob"} & set(repr(request_body(first)).split("'"))
    assert first.user != second.user
    assert first.cache_salt == second.cache_salt
    assert reader.requests[0].user == "ann"


async def test_every_chunks_request_is_the_one_that_went_on() -> None:  # contract 8.7
    hooks = [Script(lambda c: emit(c.pending)), Reads(louder)]
    await guard_all(pipeline_of(*hooks), make_deltas(["a"]), make_request(messages=saying("Hi")))
    assert {contents(chunk.request)[0] for hook in hooks for chunk in hook.chunks} == {"Hi!"}


async def test_a_request_let_go_on_is_the_very_same() -> None:
    pipeline = pipeline_of(Reads(), Reads(lambda request: replace(request, messages=request.messages)))
    source, request = Source(make_deltas(["a"])), make_request()
    await guard_all(pipeline, source, request)
    assert source.requests == [request]
    assert verdicts_of(pipeline) == {name: {"admit": 1, "emit": 2} for name in ("hook0", "hook1")}


@pytest.mark.parametrize("reads", [Reads, ReadsLater])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "chat"}, "messages"),
        ({"endpoint": "responses"}, "input"),
        ({"endpoint": "completions", "messages": (), "prompts": ("Hi",)}, "prompt"),
    ],
)
async def test_a_refusal_is_the_callers_to_hear_and_the_engine_is_not_asked(
    reads: type[Reads], fields: dict[str, Any], param: str
) -> None:  # contract 8.8
    later = Reads()
    pipeline = pipeline_of(reads(lambda request: refuse("no_secrets")), later)
    source = Source(make_deltas(["a"]))
    with pytest.raises(RefusedError) as caught:
        await guard_all(pipeline, source, replace(make_request(), **fields))
    assert isinstance(caught.value, RequestError)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "content_filter", param)
    assert str(caught.value) == "The prompt was refused: no_secrets"
    assert (source.requests, later.requests, later.chunks) == ([], [], [])
    assert verdicts_of(pipeline)["hook0"] == {"refuse": 1}


async def test_a_refusal_with_a_text_is_every_outputs_answer() -> None:  # contract 8.8
    source = Source(make_deltas(["a"]))
    request = make_request(n=2)
    released = await guard_all(pipeline_of(Reads(lambda r: refuse("why", "I cannot."))), source, request)
    assert source.requests == []
    for index in range(2):
        assert text_of(released, index=index) == "I cannot."
        assert finish_of(released, index) == ("content_filter", "why")
        assert [delta.usage for delta in released if delta.index == index] == [Usage(0, 0)] * 2
    assert [delta.tokens for delta in released] == [()] * 4


async def test_an_empty_text_is_an_answer_too() -> None:
    released = await guard_all(pipeline_of(Reads(lambda r: refuse("why", ""))), Source([]))
    assert (text_of(released), finish_of(released)) == ("", ("content_filter", "why"))


async def test_later_hooks_see_a_refusals_text_as_the_streams_only_chunk() -> None:  # contract 8.8
    earlier, later = Script(lambda c: emit(c.pending)), Script(lambda c: emit(c.pending.upper()))
    pipeline = pipeline_of(earlier, Reads(lambda r: refuse("why", "no")), later)
    released = await guard_all(pipeline, Source([]), make_request(n=2))
    assert [text_of(released, index=i) for i in range(2)] == ["NO", "NO"]
    assert earlier.chunks == []
    assert [(c.output_index, c.text, c.is_final, c.aborted) for c in later.chunks] == [
        (0, "no", True, False),
        (1, "no", True, False),
    ]


async def test_a_later_hook_that_ends_the_answer_leaves_the_reason() -> None:
    later = Script(lambda c: terminate("later", text="enough"))
    released = await guard_all(pipeline_of(Reads(lambda r: refuse("why", "no")), later), Source([]))
    assert (text_of(released), finish_of(released)) == ("enough", ("content_filter", "why"))


async def test_a_later_hook_that_fails_on_a_refusals_text_fails_the_request() -> None:
    failing = Script(lambda c: hold())
    pipeline = pipeline_of(Reads(lambda r: refuse("why", "no")), failing)
    with pytest.raises(HookError) as caught:
        await guard_all(pipeline, Source([]))
    assert caught.value.hook == "hook1"
    assert len(failing.chunks) == 1


async def test_a_refused_answer_finishes_as_the_server_was_told_to() -> None:  # contract 8.8
    pipeline = pipeline_of(Reads(lambda r: refuse("why", "no")), terminate_finish_reason="stop")
    assert finish_of(await guard_all(pipeline, Source([]))) == ("stop", "why")


def changed(**fields: Any) -> Callable[[GenerationRequest], GenerationRequest]:
    return lambda request: replace(request, **fields)


async def not_awaited() -> None: ...


WRONG: dict[str, Callable[[GenerationRequest], Any]] = {
    "nothing": lambda request: None,
    "a verdict": lambda request: terminate("why"),
    "a coroutine of a plain method": lambda request: not_awaited(),
    "messages alone": lambda request: request.messages,
    "another id": changed(request_id="r2"),
    "another temperature": changed(sampling=SamplingParams(temperature=0.5, stop=("a",))),
    "a stop that is none": lambda r: replace(r, sampling=replace(r.sampling, stop=cast(Any, (1,)))),
    "an empty stop": lambda r: replace(r, sampling=replace(r.sampling, stop=("",))),
    "no sampling": changed(sampling=None),
    "more outputs": changed(sampling=SamplingParams(n=3, logprobs=2)),
    "other hooks": changed(hooks=("x",)),
    "another model": changed(model="other"),
    "another endpoint": changed(endpoint="completions"),
    "another caller": changed(user="root"),
    "another way to answer": changed(stream=True),
    "no messages": changed(messages=()),
    "a prompt more": changed(prompts=("Hi",)),
    "messages that are none": changed(messages=("Hi",)),
    "a message of nobody": changed(messages=({"content": "Hi"},)),
    "a role that is none": changed(messages=({"role": 5, "content": "Hi"},)),
    "a content that is none": changed(messages=({"role": "user", "content": 5},)),
    "a part that is none": changed(messages=({"role": "user", "content": ["Hi"]},)),
    "tools that are none": changed(tools=("f",)),
    "half a character": changed(messages=saying("\ud800")),
    "what JSON cannot say": changed(messages=saying(cast(Any, {1}))),
    "a reason that is none": lambda request: refuse(cast(Any, 7)),
    "a text that is none": lambda request: refuse("why", cast(Any, 7)),
    "an exception": lambda request: 1 / 0,
    "an exit": lambda request: exit(3),
}


@pytest.mark.parametrize("reads", [Reads, ReadsLater])
@pytest.mark.parametrize("what", WRONG)
async def test_anything_else_fails_the_request_closed(reads: type[Reads], what: str) -> None:  # contract 8.7
    pipeline = pipeline_of(reads(WRONG[what]))
    source = Source(make_deltas(["a"]))
    with pytest.raises(HookError) as caught:
        await guard_all(pipeline, source)
    assert caught.value.hook == "hook0"
    assert source.requests == []
    assert verdicts_of(pipeline) == {"hook0": {"error": 1}}


async def test_a_prompt_of_a_completion_stays_one_text() -> None:
    request = make_request(messages=(), prompts=("a", "b"))
    request = replace(request, endpoint="completions")
    source = Source([Delta(index=i, finish_reason="stop") for i in range(2)])
    await guard_all(pipeline_of(Reads(louder)), source, request)
    assert source.requests[0].prompts == ("a!", "b!")
    for prompts in (("a",), ("a", (1, 2)), ("a", None)):
        with pytest.raises(HookError):
            await guard_all(pipeline_of(Reads(changed(prompts=prompts))), source, request)


async def test_values_of_a_hooks_own_classes_go_on_as_plain_ones() -> None:
    class Text(str):
        pass

    source = Source(make_deltas(["a"]))
    await guard_all(pipeline_of(Reads(changed(messages=saying(Text("Hi"))))), source)
    assert type(source.requests[0].messages[0]["content"]) is str


@pytest.mark.parametrize("reads", [Reads, ReadsLater])
async def test_a_deadline_fails_the_request_closed(reads: type[Reads]) -> None:  # contract 8.1
    pipeline = pipeline_of(reads(lambda request: time.sleep(0.03) or request), hook_timeout=0.02)
    source = Source([])
    with pytest.raises(HookError):
        await guard_all(pipeline, source)
    assert source.requests == []


async def test_an_async_hook_that_waits_too_long_is_not_awaited() -> None:  # contract 8.1
    class Waits(Script):
        async def on_request(self, request: GenerationRequest) -> GenerationRequest:
            await asyncio.Event().wait()
            return request

    with pytest.raises(HookError):
        await guard_all(pipeline_of(Waits(lambda c: emit(c.pending)), hook_timeout=0.02), Source([]))


async def test_a_client_that_leaves_is_no_failure_of_the_hook() -> None:
    waiting = asyncio.Event()

    class Waits(Script):
        async def on_request(self, request: GenerationRequest) -> GenerationRequest:
            waiting.set()
            await asyncio.Event().wait()
            return request

    pipeline = pipeline_of(Waits(lambda c: emit(c.pending)))
    client = asyncio.get_running_loop().create_task(guard_all(pipeline, Source([])))
    await waiting.wait()
    client.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client
    assert verdicts_of(pipeline) == {"hook0": {}}


async def test_the_log_names_no_prompt(caplog: pytest.LogCaptureFixture) -> None:
    def tell(request: GenerationRequest) -> GenerationRequest:
        raise ValueError(f"I saw {request.messages}")

    with caplog.at_level(logging.INFO), pytest.raises(HookError) as caught:
        await guard_all(pipeline_of(Reads(tell)), Source([]), make_request(messages=saying("hunter2")))
    assert "hunter2" not in str(caught.value) + caplog.text
    assert "hook0" in caplog.text


def shadowed(hook: Any) -> Pipeline:
    return Pipeline([LoadedHook.of("shadow", hook, is_shadow=True)])


def scribble(request: GenerationRequest) -> None:
    request.messages[0]["content"] = "scribbled"


@pytest.mark.parametrize(
    ("read", "counted"),
    [
        (lambda request: refuse("why"), "refuse"),
        (lambda request: refuse("why", "no"), "refuse"),
        (louder, "rewrite_prompt"),
        (lambda request: request, "admit"),
        (scribble, "error"),
    ],
)
async def test_a_shadow_hook_is_counted_and_has_no_effect(read: Any, counted: str) -> None:  # contract 3.15
    pipeline = shadowed(Reads(read))
    source, request = Source(make_deltas(["a"])), make_request(messages=saying("Hi"))
    assert text_of(await guard_all(pipeline, source, request)) == "a"
    assert source.requests == [make_request(messages=saying("Hi"))]
    assert verdicts_of(pipeline)["shadow"][counted] == 1


@pytest.mark.parametrize("in_shadow", [False, True])
async def test_all_hooks_have_the_values_that_hooks_in_force_said(in_shadow: bool) -> None:  # contract 9.11
    class Says(Script):
        def on_request(self, request: GenerationRequest, state: dict[Any, Any]) -> GenerationRequest:
            state["caller_values"] = {"[NAME]": "Ann"}
            return request

    hooks = [Script(lambda c: emit(c.pending)), Says(lambda c: emit(c.pending))]
    loaded = [LoadedHook.of(f"hook{i}", hook, is_shadow=in_shadow) for i, hook in enumerate(hooks)]
    await guard_all(Pipeline(loaded), make_deltas(["a"]))
    said = {} if in_shadow else {"[NAME]": "Ann"}
    assert [chunk.caller_values for hook in hooks for chunk in hook.chunks] == [said] * 4


async def test_a_hook_that_a_request_names_reads_its_prompt() -> None:
    reader = Reads(lambda request: refuse("strict"))
    pipeline = Pipeline([], [LoadedHook.of("strict", reader)])
    source = Source(make_deltas(["a"]))
    await guard_all(pipeline, source)
    assert (reader.requests, len(source.requests)) == ([], 1)
    with pytest.raises(RefusedError):
        await guard_all(pipeline, source, make_request(hooks=("strict",)))


async def test_the_self_test_shows_each_hook_a_prompt() -> None:  # contract 1.4, 1.6
    reader = Reads(lambda request: refuse("why") if request.messages else refuse("why", "no"))
    await pipeline_of(reader).start()
    assert [request.endpoint for request in reader.requests] == ["chat", "completions"]
    with pytest.raises(HookLoadError, match="hook 'hook1' failed its self-test"):
        await pipeline_of(reader, Reads(lambda request: request.messages[0])).start()


async def test_a_shadow_hook_that_fails_on_a_prompt_fails_its_self_test() -> None:  # contract 1.6
    with pytest.raises(HookLoadError, match="failed its self-test"):
        await shadowed(Reads(lambda request: None)).start()


def test_what_is_no_method_keeps_the_server_from_starting(tmp_path: Any) -> None:
    (tmp_path / "wrong.py").write_text(
        "class Wrong:\n    on_request = 'yes'\n    def __call__(self, chunk): ...\n"
    )
    with pytest.raises(HookLoadError, match="on_request"):
        load_hook(HookSpec(f"{tmp_path}/wrong.py:Wrong"))


def test_a_hook_may_say_that_it_reads_no_prompts() -> None:
    class Quiet:
        on_request = None

        def __call__(self, chunk: Chunk) -> Verdict:
            return emit(chunk.pending)

    assert not pipeline_of(Quiet()).open(make_request()).reads_prompts
