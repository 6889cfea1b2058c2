"""The check finds hooks whose result depends on where a stream is cut."""

import re
from pathlib import Path

import pytest

from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from hooks.testing.check import PROMPTS, RECORDINGS, check
from hooks.workers.watched import CheckError
from tests.helpers import slow

ROOT = Path(__file__).parents[3]

HOOKS = """
import asyncio, os, time
from hooks import emit, hold, refuse, terminate

class Leaks:
    '''Releases the first part of a word before it knows the rest.'''
    def __call__(self, chunk):
        return terminate("x") if "hunter2" in chunk.text else emit(chunk.pending)

class Raises:
    def __call__(self, chunk):
        if "4111" in chunk.text:
            raise ValueError
        return emit(chunk.pending)

class Reads:
    def __init__(self, fails=False):
        self.fails = fails
        self.pid = os.getpid()
    def on_request(self, request):
        said = [len(message["content"]) for message in request.messages] if self.fails else 0
        return refuse("why", None if self.fails else f"{os.getppid()}")
    def __call__(self, chunk):
        return emit(chunk.pending)

class Exits:
    def __init__(self, at="call", code=0):
        self.at, self.code = at, code
        if at == "init":
            os._exit(code)
    def __call__(self, chunk):
        if self.at == "call" or "card" in chunk.text.lower():
            os._exit(self.code)
        return emit(chunk.pending)

class Sleeps:
    def __init__(self, at="call", stubborn=False):
        self.at, self.stubborn = at, stubborn
        if at == "init":
            self.sleep()
    def __call__(self, chunk):
        if self.at == "call" or "card" in chunk.text.lower():
            self.sleep()
        return emit(chunk.pending)
    def sleep(self):
        while True:
            try:
                time.sleep(60)
            except TimeoutError:
                if not self.stubborn:
                    raise

class SleepsAsync(Sleeps):
    async def __call__(self, chunk):
        if self.at == "call" or "card" in chunk.text.lower():
            await asyncio.sleep(60)
        return emit(chunk.pending)

class Slow:
    async def __call__(self, chunk):
        return emit(chunk.pending) if chunk.is_final else hold()
"""


@pytest.fixture(autouse=True)
def mode() -> str:
    """The check runs each hook in both modes by itself."""
    return "both"


@pytest.mark.parametrize("hook", ["banned_phrase.py:BannedPhrase", slow("redact_email.py:RedactEmail")])
async def test_the_examples_are_right_at_every_boundary(hook: str) -> None:
    results = await check(HookSpec(f"{ROOT}/examples/{hook}"))
    assert [result.name for result in results] == list(RECORDINGS)
    assert [result for result in results if not result.is_good] == []
    assert max(result.num_held for result in results) > 5
    assert all(result.num_runs > 100 for result in results)


async def test_a_guard_that_leaks_is_reported(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(HOOKS)
    results = {r.name: r for r in await check(HookSpec(f"{tmp_path}/guards.py:Leaks"))}
    bad = results.pop("reasoning")
    assert bad.num_leaked > 0
    assert "cut into tokens" in bad.differing
    assert "cut into tokens in a worker" in bad.differing
    assert all(result.is_good for result in results.values())


@pytest.mark.slow
async def test_a_hook_that_fails_is_reported(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(HOOKS)
    results = {r.name: r for r in await check(HookSpec(f"{tmp_path}/guards.py:Raises"))}
    assert results["card and key"].failure == "fails on the whole text"
    assert results["prose"].is_good


@pytest.mark.slow
async def test_a_hook_that_reads_prompts_gets_prompts() -> None:
    *others, prompts = await check(HookSpec(f"{ROOT}/examples/private_prompt.py:PrivatePrompt"))
    assert [result.name for result in others] == list(RECORDINGS)
    assert (prompts.name, prompts.num_runs, prompts.is_good) == ("prompts", 2 * len(PROMPTS), True)
    assert prompts.microseconds > 0


@pytest.mark.parametrize(
    ("args", "failure"),
    [
        ({"fails": True}, "fails on a prompt without text"),
        ({}, "gives a different result for a prompt for completions in a worker"),
    ],
)
async def test_a_hook_that_is_wrong_on_a_prompt_is_reported(
    tmp_path: Path, args: dict[str, object], failure: str
) -> None:
    (tmp_path / "guards.py").write_text(HOOKS)
    *others, prompts = await check(HookSpec(f"{tmp_path}/guards.py:Reads", args))
    assert {result.failure for result in others} == {"refuses the prompt, 'Hello?'"}
    assert (prompts.failure, prompts.is_good) == (failure, False)


CARD = "saw the recording 'card and key', whole"


@pytest.mark.parametrize(
    ("hook", "args", "timeouts", "reason"),
    [
        ("Exits", {"at": "init"}, {}, "ended its process while it was loaded"),
        ("Exits", {"at": "call"}, {}, "ended its process while it ran its self-test"),
        ("Exits", {"at": "later", "code": 3}, {}, f"ended its process while it {CARD}"),
        ("Sleeps", {"at": "init"}, {"hook_load_timeout": 1.0}, "could not be built: TimeoutError"),
        ("Sleeps", {"at": "call"}, {"hook_timeout": 1.0}, "failed its self-test"),
        ("Sleeps", {"at": "later"}, {"hook_timeout": 1.0}, f"took longer than 1 s while it {CARD}"),
        ("SleepsAsync", {"at": "later"}, {"hook_timeout": 1.0}, f"took longer than 1 s while it {CARD}"),
        slow(  # waits for 10 seconds
            "Sleeps",
            {"at": "later", "stubborn": True},
            {"hook_timeout": 1.0, "hook_load_timeout": 9.0},  # the process must start within this time
            f"did not end while it {CARD}",
        ),
    ],
)
async def test_a_hook_that_ends_or_blocks_its_process_is_reported(
    tmp_path: Path, hook: str, args: dict[str, object], timeouts: dict[str, float], reason: str
) -> None:
    (tmp_path / "guards.py").write_text(HOOKS)
    with pytest.raises(CheckError, match=re.escape(reason)):
        await check(HookSpec(f"{tmp_path}/guards.py:{hook}", args), PipelineOptions(**timeouts))


async def test_an_async_hook_that_holds_to_the_end_is_right(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(HOOKS)
    results = await check(HookSpec(f"{tmp_path}/guards.py:Slow"))
    assert all(result.is_good for result in results)
    assert results[0].num_held == len(RECORDINGS["prose"][1])
