"""The in-process engine as the service sees it: an event loop, requests, and what may go wrong."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.core.engine_core import EngineCore
from engine.protocol import (
    DeadEngineError,
    Delta,
    EngineError,
    GenerationRequest,
    QueueFullError,
    RequestError,
)
from engine.sampling.guided.compiler import Checker, GrammarError
from engine.sampling.guided.grammar import Grammar
from engine.streams.flow import StagedFlow
from tests.engine.streams.stages import Answer, Passing
from tests.helpers import until
from tests.processes import WAIT_LIMIT

Complete = Callable[..., GenerationRequest]
Start = Callable[..., Awaitable[Any]]


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> list[EngineCore]:
    """Every core made in the test, to reach into from outside."""
    made: list[EngineCore] = []
    init = EngineCore.__init__

    def remember(self: EngineCore, *args: Any) -> None:
        init(self, *args)
        made.append(self)

    monkeypatch.setattr(EngineCore, "__init__", remember)
    return made


async def test_a_chat_is_answered(engine: Any) -> None:
    (answer,) = await engine.chat("hello", max_tokens=5, ignore_eos=True)
    assert len(answer.ids) == 5
    assert answer.finish_reason == "length"
    assert answer.usage.completion_tokens == 5
    assert engine.info.max_model_len == 512
    assert engine.info.vocab_size == 400
    assert engine.info.max_prompt_bytes == 512 * len("<|im_start|>")
    assert engine.tokenizer.eos_token_id in engine.info.eos_token_ids


async def test_nothing_runs_until_it_is_iterated(engine: Any, completion_request: Complete) -> None:
    stream = engine.generate(completion_request("hello", max_tokens=5))
    await asyncio.sleep(0.05)
    assert engine.stats().steps_total == 0
    await stream.aclose()


async def test_outputs_are_numbered_prompt_by_prompt(engine: Any) -> None:
    prompts = ("hello", (20, 30))
    answers = await engine.complete(*prompts, n=2, max_tokens=6, temperature=1.0, seed=5, ignore_eos=True)
    for p, prompt in enumerate(prompts):
        for i in range(2):
            (alone,) = await engine.complete(
                prompt, max_tokens=6, temperature=1.0, seed=5 + i, ignore_eos=True
            )
            assert answers[2 * p + i].ids == alone.ids
    assert answers[0].ids != answers[1].ids
    ids = tuple(engine.tokenizer.encode("hello"))
    assert [a.deltas[0].prompt_token_ids for a in answers] == [ids, ids, (20, 30), (20, 30)]
    assert all(d.prompt_token_ids is None for a in answers for d in a.deltas[1:])
    assert not engine.info.parses_tool_calls
    usage = max(a.usage.completion_tokens for a in answers)
    assert (usage, answers[0].usage.prompt_tokens) == (24, len(ids) + 2)


async def test_closing_the_iterator_frees_everything(engine: Any, completion_request: Complete) -> None:
    async with aclosing(engine.generate(completion_request("hello", n=3, max_tokens=400))) as stream:
        await anext(stream)
    await until(lambda: engine.stats().aborted_total == 1)
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.kv_blocks_used) == (0, 0, 0)
    assert stats.generation_tokens_total < 1200


async def test_cancelling_the_task_is_closing_the_iterator(engine: Any) -> None:
    task = asyncio.get_running_loop().create_task(engine.complete("hello", max_tokens=400))
    await until(lambda: engine.stats().num_running == 1)
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: engine.stats().num_running == 0)


async def test_echo_gives_the_prompt_back_with_its_logprobs(
    engine: Any, tiny_model: Callable[[str], Any]
) -> None:
    import torch

    prompt = "hello world, Grüße 你好"
    (answer,) = await engine.complete(prompt, echo=True, logprobs=2, max_tokens=2)
    assert answer.deltas[0].channel == "echo"
    assert "".join(t.text for t in answer.echo) == prompt
    ids = engine.tokenizer.encode(prompt)
    assert [t.id for t in answer.echo] == ids
    assert (answer.echo[0].logprob, answer.echo[0].top) == (None, ())
    with torch.inference_mode():
        expected = tiny_model("llama").model(torch.tensor([ids])).logits[0].log_softmax(-1)
    for position, token in enumerate(answer.echo[1:]):
        assert token.logprob == pytest.approx(expected[position, token.id].item(), abs=1e-4)
        assert [t.id for t in token.top] == expected[position].topk(2).indices.tolist()
        assert [t.raw for t in token.top] == [engine.tokenizer.raw(t.id) for t in token.top]


async def test_the_echo_of_a_text_that_names_special_tokens_tells_each_tokens_own_text(engine: Any) -> None:
    first, second, *_ = [one.content for one in engine.tokenizer.fast.get_added_tokens_decoder().values()]
    prompt = f"hello{first}{second} wörld{second}"
    (answer,) = await engine.complete(prompt, echo=True, logprobs=0, max_tokens=1)
    assert "".join(t.text for t in answer.echo) == prompt
    assert [t.id for t in answer.echo] == engine.tokenizer.encode(prompt)
    special = (first, second)
    assert [t.text for t in answer.echo if t.text in special] == [first, second, second]


async def test_prompt_logprobs_are_the_models_with_ranks(
    engine: Any, tiny_model: Callable[[str], Any]
) -> None:
    import torch

    prompt = "hello world, Grüße 你好"
    (answer,) = await engine.complete(prompt, prompt_logprobs=3, max_tokens=2, n=1)
    ids = engine.tokenizer.encode(prompt)
    assert ([t.id for t in answer.echo], "".join(t.text for t in answer.echo)) == (ids, prompt)
    assert all(t.logprob is None for t in answer.tokens), "the output has none: nobody asked for them"
    with torch.inference_mode():
        expected = tiny_model("llama").model(torch.tensor([ids])).logits[0].log_softmax(-1)
    for position, token in enumerate(answer.echo[1:]):
        assert token.logprob == pytest.approx(expected[position, token.id].item(), abs=1e-4)
        assert token.rank == 1 + (expected[position] > expected[position, token.id]).sum().item()
        assert [t.id for t in token.top] == expected[position].topk(3).indices.tolist()


async def test_prompt_logprobs_of_a_chat_are_those_of_the_prompt_that_its_template_makes(engine: Any) -> None:
    (answer,) = await engine.chat("hello", prompt_logprobs=0, max_tokens=1)
    assert tuple(t.id for t in answer.echo) == answer.deltas[0].prompt_token_ids
    assert "".join(t.text for t in answer.echo) == "user\nhello\nassistant\n"
    assert [t.logprob is None for t in answer.echo] == [True] + [False] * (len(answer.echo) - 1)
    assert all(not t.top for t in answer.echo)


async def test_a_prompt_has_the_most_logprobs_that_two_fields_ask_for(engine: Any) -> None:
    (answer,) = await engine.complete("hello world", echo=True, logprobs=1, prompt_logprobs=2, max_tokens=1)
    assert [len(t.top) for t in answer.echo[1:]] == [2] * (len(answer.echo) - 1)
    assert [len(t.top) for t in answer.tokens] == [1]
    with pytest.raises(RequestError) as refused:
        await engine.complete("hello world", prompt_logprobs=21)
    assert refused.value.param == "prompt_logprobs"


@pytest.mark.parametrize("logprobs", [None, 0])
async def test_echo_alone_needs_no_token_generated(engine: Any, logprobs: int | None) -> None:
    (answer,) = await engine.complete("hello world", echo=True, max_tokens=0, logprobs=logprobs)
    assert "".join(t.text for t in answer.echo) == "hello world"
    assert (answer.tokens, answer.finish_reason, answer.usage.completion_tokens) == ([], "length", 0)
    assert all((t.logprob is None) == (logprobs is None) for t in answer.echo[1:])


async def test_a_prompt_that_ends_inside_a_character_is_completed_by_the_output(engine: Any) -> None:
    first, *others = (engine.tokenizer.fast.token_to_id(c) for c in "ðŁİī")
    (answer,) = await engine.complete(
        (first,), echo=True, max_tokens=3, logit_bias=dict.fromkeys(others[:1], 100.0), ignore_eos=True
    )
    assert "".join(t.text for t in answer.echo) == ""
    assert [t.id for t in answer.echo] == [first]


async def test_the_tokenizer_may_be_another_folder(start_engine: Start, tmp_path: Path) -> None:
    with pytest.raises((OSError, ValueError)):
        await start_engine(tokenizer=str(tmp_path))


async def test_stop_strings_end_an_output_before_they_are_seen(engine: Any) -> None:
    (whole,) = await engine.complete("hello", max_tokens=60, ignore_eos=True)
    stop = whole.text[8:11]
    (answer,) = await engine.complete("hello", max_tokens=60, ignore_eos=True, stop=(stop,))
    assert answer.text == whole.text[: whole.text.index(stop)]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", stop)
    assert answer.usage.completion_tokens < 60


async def test_the_end_of_sequence_comes_without_text_and_is_counted(engine: Any) -> None:
    for fields, reason in (({}, None), ({"ignore_eos": True, "stop_token_ids": (1,)}, 1)):
        (answer,) = await engine.complete("hello", max_tokens=20, logit_bias={1: 200.0}, **fields)
        assert (answer.finish_reason, answer.stop_reason) == ("stop", reason)
        assert (answer.ids, answer.tokens[-1].text) == ([1], "")
        assert answer.usage.completion_tokens == 1


async def test_a_stop_id_that_stands_for_text_is_counted_and_not_given(engine: Any) -> None:
    """It would be a token that no hook was shown the text of."""
    (whole,) = await engine.complete("hello", max_tokens=20, ignore_eos=True)
    third = whole.ids[2]
    (answer,) = await engine.complete("hello", max_tokens=20, stop_token_ids=(third,))
    assert (answer.finish_reason, answer.stop_reason) == ("stop", third)
    assert third not in answer.ids
    assert answer.usage.completion_tokens == whole.ids.index(third) + 1


async def test_min_tokens_puts_every_end_off(engine: Any) -> None:
    (answer,) = await engine.complete("hello", max_tokens=20, min_tokens=7, logit_bias={1: 200.0})
    assert (len(answer.ids), answer.ids[-1]) == (8, 1)
    (whole,) = await engine.complete(
        "hello", max_tokens=20, min_tokens=7, ignore_eos=True, stop=tuple("abcdefghi ")
    )
    assert whole.usage.completion_tokens > 7
    (ignored,) = await engine.complete("hello", max_tokens=5, logit_bias={1: 200.0}, ignore_eos=True)
    assert (ignored.ids, ignored.finish_reason) == ([1] * 5, "length")


async def test_logprobs_come_with_each_token(engine: Any) -> None:
    (answer,) = await engine.complete("hello", max_tokens=10, logprobs=3)
    for token in answer.tokens:
        assert token.top[0].id == token.id
        assert token.top[0].logprob == token.logprob
        assert [t.logprob for t in token.top] == sorted((t.logprob for t in token.top), reverse=True)
        assert token.raw == engine.tokenizer.raw(token.id)


async def test_the_queue_s_limit_is_kept(start_engine: Start, completion_request: Complete) -> None:
    engine = await start_engine(max_num_seqs=1, max_queue_len=1)
    streams = [
        engine.generate(completion_request("hello", max_tokens=300, ignore_eos=True)) for _ in range(2)
    ]
    tasks = [asyncio.get_running_loop().create_task(anext(s)) for s in streams]
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await engine.complete("hello", max_tokens=1)
    await tasks[0]
    await streams[0].aclose()
    assert len((await engine.complete("hello", max_tokens=1))[0].ids) == 1
    await tasks[1]
    await streams[1].aclose()


async def test_candidates_that_nobody_will_see_count_in_the_queue(
    start_engine: Start, completion_request: Complete
) -> None:
    engine = await start_engine(max_num_seqs=1, max_queue_len=3)
    request = completion_request("hello", n=1, best_of=4, max_tokens=300, temperature=1.0, ignore_eos=True)
    stream = engine.generate(request)
    task = asyncio.get_running_loop().create_task(anext(stream))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await engine.complete("hello", max_tokens=1)
    task.cancel()
    await asyncio.wait([task])
    assert len((await engine.complete("hello", max_tokens=1))[0].ids) == 1


async def test_slow_grammars_of_one_caller_who_leaves_early_keep_no_other_caller_waiting(
    engine: Any, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:  # contract 8.5
    begun: list[str] = []
    gate = threading.Event()
    check = Checker.check

    def slow(self: Checker, grammar: Grammar) -> str:
        begun.append(grammar.text)
        assert "slow" not in grammar.text or gate.wait(60)
        return check(self, grammar)

    monkeypatch.setattr(Checker, "check", slow)

    def complete(caller: str, regex: str) -> asyncio.Task[Any]:
        request = completion_request("hello", max_tokens=1, extra={"guided_regex": regex}, caller=caller)
        return asyncio.get_running_loop().create_task(anext(engine.generate(request)))

    slows = [complete("a", f"slow{i}") for i in range(10)]
    await until(lambda: begun)
    first = slows.pop(0)
    first.cancel()
    await asyncio.wait([first])
    await complete("b", "[a-z]")
    assert begun == ["slow0", "[a-z]"], "nothing of the other caller had ended"
    gate.set()
    await asyncio.gather(*slows)
    assert len(begun) == 11


async def test_closing_ends_requests_whose_grammars_wait(
    start_engine: Start, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await start_engine()
    begun, gate = threading.Event(), threading.Event()

    def stuck(self: Checker, grammar: Grammar) -> str:
        begun.set()
        gate.wait(60)
        raise GrammarError("it was closed")

    monkeypatch.setattr(Checker, "check", stuck)
    requests = [completion_request("hello", max_tokens=1, extra={"guided_regex": f"a{i}"}) for i in range(4)]
    tasks = [asyncio.get_running_loop().create_task(anext(engine.generate(one))) for one in requests]
    await until(begun.is_set)
    closing = asyncio.get_running_loop().create_task(engine.aclose())
    await asyncio.sleep(0)
    gate.set()
    first, *others = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(first, RequestError | EngineError)
    assert [error.status for error in others if isinstance(error, EngineError)] == [503] * 3
    await closing


async def test_more_outputs_than_the_cache_holds_take_turns(start_engine: Start) -> None:
    engine = await start_engine(kv_cache_memory=7 * 16 * 384)
    assert engine.info.max_model_len == 7 * 16
    with pytest.raises(RequestError, match="maximum context length is 112 tokens"):
        await engine.complete((5,) * 100, n=8, max_tokens=13)
    answers = await engine.complete((5,) * 80, n=8, max_tokens=32, ignore_eos=True)
    assert [len(answer.ids) for answer in answers] == [32] * 8
    assert len({tuple(answer.ids) for answer in answers}) == 1
    assert engine.stats().preemptions_total


async def test_request_errors_come_before_the_first_delta(engine: Any) -> None:
    with pytest.raises(RequestError, match="maximum context length"):
        await engine.complete("hello", max_tokens=1000)
    with pytest.raises(RequestError, match="refuses"):
        await engine.chat(None)
    assert len((await engine.complete("hello", max_tokens=1))[0].ids) == 1


async def failing_among_others(engine: Any, bad: dict[str, Any], status: int = 500) -> None:
    """One request fails by itself; one beside it, and one after it, are answered."""
    bystander = asyncio.get_running_loop().create_task(
        engine.complete("hello", max_tokens=100, ignore_eos=True)
    )
    await until(lambda: engine.stats().num_running == 1)
    caught: Any
    with pytest.raises((EngineError, RequestError)) as caught:
        await engine.complete("world", max_tokens=30, ignore_eos=True, **bad)
    assert caught.value.status == status
    assert len((await bystander)[0].ids) == 100
    (after,) = await engine.complete("world", max_tokens=3, ignore_eos=True)
    assert len(after.ids) == 3
    engine.check_health()
    await until(lambda: engine.stats().kv_blocks_used == 0)


async def test_a_sequence_without_a_token_to_draw_fails_alone(engine: Any) -> None:
    """The caller's fields take the last one away."""
    await failing_among_others(engine, {"min_tokens": 5, "stop_token_ids": tuple(range(400))}, 400)


async def test_an_error_in_sampling_fails_one_request(
    engine: Any, cores: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import engine.sampling.sampler as sampler

    keep_top_k = sampler.keep_top_k

    def fail(logits: Any, states: Any) -> Any:
        if any(s.params.top_k == 13 for s in states):
            raise RuntimeError("hook of the test")
        return keep_top_k(logits, states)

    monkeypatch.setattr(sampler, "keep_top_k", fail)
    await failing_among_others(engine, {"top_k": 13, "temperature": 1.0})
    assert "sampling failed" in caplog.text


async def test_an_error_in_detokenizing_fails_one_request(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.text.detokenizer import Detokenizer

    decode = Detokenizer.decode

    def fail(self: Any, token: Any, **kwargs: Any) -> Any:
        if self._stop == ("\0never",):
            raise RuntimeError("hook of the test")
        return decode(self, token, **kwargs)

    monkeypatch.setattr(Detokenizer, "decode", fail)
    await failing_among_others(engine, {"stop": ("\0never",)})


async def test_an_error_in_the_forward_fails_the_step_s_requests(
    start_engine: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from engine.execution.model_runner import ModelRunner

    engine = await start_engine()
    run = ModelRunner.run

    def fail(self: Any, scheduled: Any, token_ids: Any) -> Any:
        if any(s.sequence.num_output_tokens == 5 for s in scheduled):
            raise RuntimeError("hook of the test")
        return run(self, scheduled, token_ids)

    monkeypatch.setattr(ModelRunner, "run", fail)
    results = await asyncio.gather(
        *(engine.complete("secret words", max_tokens=30, ignore_eos=True) for _ in range(3)),
        return_exceptions=True,
    )
    assert all(isinstance(r, EngineError) and r.status == 500 for r in results)
    assert "hook of the test" not in str(results)
    assert "secret" not in caplog.text
    assert len((await engine.complete("hello", max_tokens=4))[0].ids) == 4
    await until(lambda: engine.stats().kv_blocks_used == 0)


async def test_a_dead_thread_is_noticed_by_all(
    cores: list[EngineCore], start_engine: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await start_engine()
    engine.check_health()

    def die() -> Any:
        raise RuntimeError("hook of the test")

    running = [
        asyncio.get_running_loop().create_task(engine.complete("hello", max_tokens=500, ignore_eos=True))
        for _ in range(3)
    ]
    await until(lambda: engine.stats().num_running == 3)
    monkeypatch.setattr(cores[0].scheduler, "schedule", die)
    results = await asyncio.gather(*running, return_exceptions=True)
    assert [r.status for r in results if isinstance(r, EngineError)] == [503] * 3
    with pytest.raises(EngineError, match="failed"):
        engine.check_health()
    with pytest.raises(EngineError):
        await engine.complete("hello")


async def test_aclose_ends_what_runs(start_engine: Start) -> None:
    engine = await start_engine()
    running = asyncio.get_running_loop().create_task(
        engine.complete("hello", max_tokens=500, ignore_eos=True)
    )
    await until(lambda: engine.stats().num_running == 1)
    await engine.aclose()
    with pytest.raises(EngineError, match="shut"):
        await running
    with pytest.raises(EngineError, match="shut"):
        await engine.complete("hello")
    await engine.aclose()


async def test_aclose_tells_streams_before_a_running_step_ends(
    start_engine: Start, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepping, go = threading.Event(), threading.Event()

    def step(core: EngineCore) -> list[Any]:
        stepping.set()
        assert go.wait(WAIT_LIMIT)
        return []

    engine = await start_engine()
    monkeypatch.setattr(EngineCore, "step", step)
    stream = engine.generate(completion_request("hello", max_tokens=5))
    asking = asyncio.get_running_loop().create_task(anext(stream))
    await asyncio.to_thread(stepping.wait, WAIT_LIMIT)
    closing = asyncio.get_running_loop().create_task(engine.aclose())
    try:
        with pytest.raises(EngineError, match="shutting down"):
            await asking
        assert not closing.done()
    finally:
        go.set()
    await closing


async def test_an_engine_whose_thread_has_failed_is_dead(
    start_engine: Start, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(core: EngineCore) -> list[Any]:
        raise MemoryError

    engine = await start_engine()
    monkeypatch.setattr(EngineCore, "step", step)
    with pytest.raises(EngineError, match="has failed"):
        await anext(engine.generate(completion_request("hello", max_tokens=5)))
    with pytest.raises(DeadEngineError):
        engine.check_health()


async def test_before_start_it_is_not_healthy(tiny_model: Callable[[str], Any]) -> None:
    from engine.local.engine import LocalEngine
    from engine.protocol.options import EngineConfig

    engine = LocalEngine(EngineConfig(model=str(tiny_model("llama").path)))
    with pytest.raises(EngineError, match="not been started"):
        engine.check_health()
    await engine.aclose()


async def test_what_cannot_be_loaded_is_said_at_start(start_engine: Start, tmp_path: Any) -> None:
    from engine.local.engine import LocalEngine
    from engine.protocol.options import EngineConfig

    engine = LocalEngine(EngineConfig(model=str(tmp_path / "missing")))
    with pytest.raises((OSError, ValueError)):
        await engine.start()
    await engine.aclose()
    with pytest.raises(ValueError, match="made for 512 tokens"):
        await start_engine(max_model_len=4096)


async def test_a_step_is_one_post_to_the_loop(
    engine: Any, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[str] = []
    loop, process = asyncio.get_running_loop(), engine._preparation.process
    post = loop.call_soon_threadsafe
    all_are_ready = asyncio.Barrier(8)

    def count(callback: Any, *args: Any, **options: Any) -> Any:
        # A request that is gone is told of without a step, and has nothing to deliver.
        if threading.current_thread().name == "weir-engine" and args[0]:
            posted.append(callback.__name__)
        return post(callback, *args, **options)

    async def process_together(*args: Any) -> Any:
        group = await process(*args)
        await all_are_ready.wait()
        return group

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    monkeypatch.setattr(engine._preparation, "process", process_together)
    answers = await asyncio.gather(
        *(engine.complete("hello", max_tokens=60, ignore_eos=True) for _ in range(8))
    )
    num_tokens = sum(len(answer.ids) for [answer] in answers)
    assert set(posted) == {"_on_step"}
    assert len(posted) <= engine.stats().steps_total < num_tokens / 2


async def test_a_reader_that_falls_behind_gets_what_waits_in_one_piece(
    engine: Any, completion_request: Complete
) -> None:
    request = completion_request("hello", n=2, max_tokens=60, temperature=1.0, seed=5, ignore_eos=True)
    expected = await engine.collect(request)
    async with aclosing(engine.generate(request)) as stream:
        deltas = [await anext(stream)]
        await until(lambda: engine.stats().num_running == 0)
        deltas += [delta async for delta in stream]
    assert len(deltas) <= 4  # what was taken with the first may have had a companion
    for index, whole in enumerate(expected):
        own = [delta for delta in deltas if delta.index == index]
        assert [token for delta in own for token in delta.tokens] == whole.tokens
        assert "".join(delta.text for delta in own) == whole.text
        assert own[-1].finish_reason == "length"
        assert own[0].prompt_token_ids == whole.deltas[0].prompt_token_ids
    assert deltas[-1].usage.completion_tokens == 120


async def test_steps_that_the_event_loop_is_behind_with_are_fed_as_one(
    engine: Any, completion_request: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that takes longer than a step is called for several tokens at once."""
    step, is_finished = EngineCore.step, threading.Event()

    def watched(core: EngineCore) -> Any:
        outputs = step(core)
        if any(isinstance(output, Delta) and output.finish_reason for _, output in outputs):
            is_finished.set()
        return outputs

    def wait(_: Passing, delta: Delta) -> None:
        if answer.deltas:
            assert is_finished.wait(WAIT_LIMIT)

    monkeypatch.setattr(EngineCore, "step", watched)
    request = completion_request("hello", max_tokens=60, ignore_eos=True)
    answer = Answer()
    await StagedFlow(partial(engine.feed, request), [Passing(wait)]).run(answer)
    assert len(answer.deltas) <= 4  # the one that the loop waits at may have had a companion
    assert sum(len(delta.tokens) for delta in answer.deltas) == 60
