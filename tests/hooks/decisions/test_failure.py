"""A hook that fails, fails its own request, closed (contract 4)."""

import logging
import re
import time

import pytest

from hooks import Chunk, GenerationRequest, PromptTooLongError, Verdict, emit, hold
from hooks.decisions.failure import HookError, place_of
from hooks.loading.alarm import interrupting
from hooks.testing.play import vetted
from tests.helpers import Script, Source, guard_all, make_deltas, make_request, pipeline_of, verdicts_of


async def test_nothing_pending_or_later_is_delivered_and_the_engine_is_closed() -> None:  # contract 4.1
    holds = Script(lambda c: hold(1) if not c.is_final else emit(c.pending))
    fails = Script(lambda c: 1 / 0 if "c" in c.text else emit(c.pending))
    source = Source(make_deltas(["ab", "cd", "ef"]))
    released: list[str] = []
    guard = pipeline_of(holds, fails).open(make_request())
    with pytest.raises(HookError):
        async for delta in vetted(guard, source):
            released.append(delta.text)
    assert released == ["a"]
    assert source.closed_early
    assert source.taken == 2


async def test_a_hook_that_exits_fails_its_request_alone() -> None:  # contract 4.1
    def leave(chunk: Chunk) -> Verdict:
        raise SystemExit(3)

    with pytest.raises(HookError):
        await guard_all(pipeline_of(Script(leave)), make_deltas(["a"]))


async def test_the_failure_names_no_output(caplog: pytest.LogCaptureFixture) -> None:  # contract 4.2, 6.2
    def tell(chunk: Chunk) -> Verdict:
        raise ValueError(f"I saw {chunk.text}")

    with caplog.at_level(logging.INFO), pytest.raises(HookError) as caught:
        await guard_all(pipeline_of(Script(tell)), make_deltas(["hunter2"]))
    assert str(caught.value) == "A guardrail failed, so the request was ended."
    assert "hunter2" not in caplog.text
    assert re.search(rf"hook hook0 failed: ValueError at {re.escape(__file__)}:\d+", caplog.text)


def test_a_hook_that_an_alarm_stopped_failed_at_its_own_line() -> None:  # contract 1.6
    with pytest.raises(TimeoutError) as caught, interrupting(0.01):
        time.sleep(60)
    assert place_of(caught.value) == f"TimeoutError at {__file__}:{caught.tb.tb_lineno}"


class CannotRead:
    """Says so of the prompt, or else of the reply's first chunk."""

    def __call__(self, chunk: Chunk) -> Verdict:
        raise PromptTooLongError(f"I saw {chunk.text}")


class CannotReadPrompt(CannotRead):
    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        raise PromptTooLongError(f"I saw {request.messages}")


@pytest.mark.parametrize("hook", [CannotRead, CannotReadPrompt])
async def test_a_prompt_too_long_for_a_hook_names_its_field_and_is_no_error_in_the_log(
    hook: type[CannotRead], caplog: pytest.LogCaptureFixture
) -> None:  # contract 4.4
    request = make_request(messages=({"role": "user", "content": "hunter2"},))
    guard = pipeline_of(hook()).open(request)
    with caplog.at_level(logging.INFO), pytest.raises(HookError) as caught:
        _ = [delta async for delta in vetted(guard, Source(make_deltas(["hunter2"])))]
    assert caught.value.param == "messages"
    assert str(caught.value).endswith("cannot read a prompt of this length.")
    assert "hunter2" not in str(caught.value) + caplog.text
    assert [record.levelname for record in caplog.records] == ["INFO"]


async def test_failures_and_verdicts_are_counted_by_hook() -> None:
    pipeline = pipeline_of(
        Script(lambda c: emit(c.pending)), Script(lambda c: 1 / 0 if c.is_final else hold())
    )
    with pytest.raises(HookError):
        await guard_all(pipeline, make_deltas(["a", "b"]))
    assert verdicts_of(pipeline) == {"hook0": {"emit": 3}, "hook1": {"hold": 2, "error": 1}}
