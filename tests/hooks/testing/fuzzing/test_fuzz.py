"""The fuzzer finds a text that a hook is wrong on, makes it small, and finds it again with its seed."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from hooks.testing.fuzzing import fuzz as fuzz_module
from hooks.testing.fuzzing.fuzz import Finding, Fuzzer

ROOT = Path(__file__).parents[4]
BANNED = f"{ROOT}/examples/banned_phrase.py:BannedPhrase"

GUARDS = '''
import asyncio
import os
import re
from hooks import emit, hold, redact, terminate

class Leaks:
    """Looks at each chunk alone, so that a word cut in two is released."""
    def __call__(self, chunk):
        return emit(chunk.pending.replace("hunter2", "***"))

class WithholdsOnce:
    """Withholds only the first occurrence."""
    def __call__(self, chunk):
        if not chunk.is_final:
            return hold()
        return emit(chunk.pending.replace("hunter2", "***", 1))

class Fails:
    def __init__(self, word):
        self.word = word
    def __call__(self, chunk):
        if self.word in chunk.text:
            raise ZeroDivisionError("here")
        return emit(chunk.pending)

class Edge:
    def __call__(self, chunk):
        if any(ord(c) > 0xffff for c in chunk.text):
            return None
        return emit(chunk.pending)

class Slow:
    def __call__(self, chunk):
        if "aaaaaaaa" in chunk.text:
            re.match(r"(a+)+$", "a" * 100 + "b")
        return emit(chunk.pending)

class Late:
    async def __call__(self, chunk):
        if "hunter2" in chunk.text:
            await asyncio.sleep(3600)
        return emit(chunk.pending)

class Hoards:
    max_hold = 3
    def __call__(self, chunk):
        return emit(chunk.pending) if chunk.is_final else hold(min(5, len(chunk.pending)))

class StreamingOnly:
    """Withholds only from streaming requests."""
    def __call__(self, chunk):
        if not chunk.is_final:
            return hold()
        return emit(chunk.pending.replace("hunter2", "***") if chunk.streaming else chunk.pending)

class Keeps:
    max_hold = 5
    async def __call__(self, chunk):
        return emit(chunk.pending) if chunk.is_final else hold(min(5, len(chunk.pending)))
'''


@pytest.fixture
def guards(tmp_path: Path) -> str:
    (tmp_path / "guards.py").write_text(GUARDS)
    return f"{tmp_path}/guards.py"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer makes a finding as small as possible, however slow the machine is."""
    monkeypatch.setattr(fuzz_module, "MAX_SHRINKING", 600.0)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of a second passes whenever the fuzzer looks at its clock, about once a text."""
    ticks = itertools.count()
    monkeypatch.setattr(fuzz_module, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 100))


def look(path: str, seconds: float = 600, seed: int = 1, **options: Any) -> Finding | None:
    args = options.pop("args", {})
    return Fuzzer(HookSpec(path, args), **options).run(seconds, seed)


def test_a_guard_that_leaks_at_a_cut_is_found_at_its_smallest(guards: str) -> None:
    finding = look(f"{guards}:Leaks")
    assert finding is not None
    assert finding.problem.startswith("not the same wherever the text is cut")
    assert finding.example.text == "hunter2"
    assert len(finding.example.places) == 1


def test_a_secret_that_is_released_is_found(guards: str) -> None:
    finding = look(f"{guards}:WithholdsOnce", secrets=["hunter2"])
    assert finding is not None
    assert "'hunter2' is released, in the text of content, output 0" in finding.problem
    assert finding.example.text == "hunter2hunter2"


def test_a_secret_that_is_released_without_streaming_is_found(guards: str) -> None:
    finding = look(f"{guards}:StreamingOnly", secrets=["hunter2"])
    assert finding is not None
    assert "not cut (not streaming):" in finding.problem


def test_strings_of_the_arguments_are_tried(guards: str) -> None:
    finding = look(f"{guards}:Fails", args={"word": "xyzzy plugh"})
    assert finding is not None
    assert finding.problem == "it fails on the whole text: ZeroDivisionError: here"
    assert finding.example.text == "xyzzy plugh"


def test_characters_beyond_the_first_plane_are_tried(guards: str) -> None:
    finding = look(f"{guards}:Edge")
    assert finding is not None
    assert "BadVerdictError" in finding.problem
    assert len(finding.example.text) <= 2


def test_a_text_that_takes_too_long_is_found(guards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_module, "MAX_SHRINKING", 1.0)
    finding = look(f"{guards}:Slow", options=PipelineOptions(hook_timeout=1.0))
    assert finding is not None
    assert "TimeoutError" in finding.problem
    assert "aaaaaaaa" in finding.example.text


def test_an_async_hook_that_takes_too_long_is_found(guards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_module, "MAX_SHRINKING", 1.0)
    finding = look(f"{guards}:Late", options=PipelineOptions(hook_timeout=0.5))
    assert finding is not None
    assert finding.problem == "it fails on the whole text: TimeoutError: its deadline passed"


def test_a_hook_that_holds_more_than_its_max_hold_is_found(guards: str) -> None:  # contract 3.14
    finding = look(f"{guards}:Hoards")
    assert finding is not None
    assert finding.problem == "it holds 4 characters, and says that it holds 3 at most"


def test_a_hook_that_holds_its_max_hold_is_right(guards: str, ticking: None) -> None:  # contract 3.14
    assert look(f"{guards}:Keeps", seconds=1) is None


def test_the_same_seed_gives_the_same_finding(guards: str) -> None:
    first = look(f"{guards}:Fails", args={"word": "xyzzy"}, seed=7)
    assert first is not None
    assert look(f"{guards}:Fails", args={"word": "xyzzy"}, seed=first.seed) == first


def test_a_correct_guard_gives_no_finding(ticking: None) -> None:
    fuzzer = Fuzzer(HookSpec(BANNED), secrets=["project bluebird"])
    assert fuzzer.run(2, seed=1) is None
    assert fuzzer.num_texts > 100
