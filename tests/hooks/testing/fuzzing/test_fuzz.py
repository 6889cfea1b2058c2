"""The fuzzer finds what hooks are wrong on, tells of the smallest, and finds it again with its seed."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.loading.loader import HookSpec
from hooks.pipeline.options import PipelineOptions
from hooks.testing.fuzzing import fuzz as fuzz_module
from hooks.testing.fuzzing.fuzz import Finding, Fuzzer
from hooks.testing.fuzzing.texts import disguised, nearly, runs, texts
from proxy.commands.cli import main
from tests.helpers import WEIR

ROOT = Path(__file__).parents[4]
BANNED = f"{ROOT}/examples/banned_phrase.py:BannedPhrase"

GUARDS = '''
import asyncio
import os
import re
from hooks import emit, hold, redact, terminate

class Leaks:
    """Looks at each chunk by itself."""
    def __call__(self, chunk):
        return emit(chunk.pending.replace("hunter2", "***"))

class Lets:
    """Takes the first, and no other."""
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

class Shy:
    """Guards a stream alone."""
    def __call__(self, chunk):
        if not chunk.is_final:
            return hold()
        return emit(chunk.pending.replace("hunter2", "***") if chunk.streaming else chunk.pending)

class Leaves:
    def __init__(self, code):
        self.code = code
    def __call__(self, chunk):
        if "hunter2" in chunk.text:
            os._exit(self.code)
        return emit(chunk.pending)

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
    """What is found is made as small as it can be, however long this machine takes."""
    monkeypatch.setattr(fuzz_module, "MAX_SHRINKING", 600.0)


def look(path: str, seconds: float = 600, seed: int = 1, **options: Any) -> Finding | None:
    args = options.pop("args", {})
    return Fuzzer(HookSpec(path, args), **options).run(seconds, seed)


def test_a_guard_that_leaks_at_a_cut_is_found_at_its_smallest(guards: str) -> None:
    finding = look(f"{guards}:Leaks")
    assert finding is not None
    assert finding.what.startswith("not the same wherever the text is cut")
    assert finding.example.text == "hunter2"
    assert len(finding.example.places) == 1


def test_a_secret_that_is_released_is_found(guards: str) -> None:
    finding = look(f"{guards}:Lets", secrets=["hunter2"])
    assert finding is not None
    assert "'hunter2' is released, in the text of content, output 0" in finding.what
    assert finding.example.text == "hunter2hunter2"


def test_a_secret_that_is_released_without_streaming_is_found(guards: str) -> None:
    finding = look(f"{guards}:Shy", secrets=["hunter2"])
    assert finding is not None
    assert "not cut (not streaming):" in finding.what


def test_a_string_in_the_arguments_is_tried(guards: str) -> None:
    finding = look(f"{guards}:Fails", args={"word": "xyzzy plugh"})
    assert finding is not None
    assert finding.what == "it fails on the whole text: ZeroDivisionError: here"
    assert finding.example.text == "xyzzy plugh"


def test_characters_beyond_the_first_plane_are_tried(guards: str) -> None:
    finding = look(f"{guards}:Edge")
    assert finding is not None
    assert "BadVerdictError" in finding.what
    assert len(finding.example.text) <= 2


def test_a_text_that_takes_too_long_is_found(guards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_module, "MAX_SHRINKING", 1.0)
    finding = look(f"{guards}:Slow", options=PipelineOptions(hook_timeout=1.0))
    assert finding is not None
    assert "TimeoutError" in finding.what
    assert "aaaaaaaa" in finding.example.text


def test_an_async_hook_that_takes_too_long_is_found(guards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_module, "MAX_SHRINKING", 1.0)
    finding = look(f"{guards}:Late", options=PipelineOptions(hook_timeout=0.5))
    assert finding is not None
    assert finding.what == "it fails on the whole text: TimeoutError: its deadline passed"


def test_a_hook_is_held_to_what_it_says_that_it_holds(guards: str) -> None:  # contract 3.14
    finding = look(f"{guards}:Hoards")
    assert finding is not None
    assert finding.what == "it holds 4 characters, and says that it holds 3 at most"
    assert look(f"{guards}:Keeps", seconds=1) is None


def test_the_same_seed_finds_the_same(guards: str) -> None:
    first = look(f"{guards}:Fails", args={"word": "xyzzy"}, seed=7)
    assert first is not None
    assert look(f"{guards}:Fails", args={"word": "xyzzy"}, seed=first.seed) == first


def test_nothing_is_found_in_a_guard_that_is_right() -> None:
    fuzzer = Fuzzer(HookSpec(BANNED), secrets=["project bluebird"])
    assert fuzzer.run(2, seed=1) is None
    assert fuzzer.num_texts > 10


@given(texts(["hunter2"]))
def test_every_text_can_be_sent(text: str) -> None:
    text.encode()


@given(st.data())
def test_a_phrase_is_disguised_nearly_said_and_run(data: st.DataObject) -> None:
    assert data.draw(disguised("word")) != "word"
    assert set(data.draw(nearly("word"))) <= set("wordx")
    assert set(data.draw(runs("word"))) <= set("word")


def fuzz(*arguments: str, code: str | None = None) -> "subprocess.CompletedProcess[str]":
    start = ["-c", code] if code else ["-m", "proxy"]
    command = [sys.executable, *start, "hooks", "fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_prints_what_it_found_and_how_to_find_it_again(guards: str) -> None:
    ended = fuzz(f"{guards}:Fails", "--args", '{"word": "xyzzy"}', "--seed", "3", "--seconds", "600")
    assert ended.returncode == 1
    assert ended.stderr == ""
    first, second, *finding = ended.stdout.splitlines()
    assert first == f"fuzzing {guards}:Fails for 600 s, seed 3"
    assert second.endswith(" texts")
    assert finding[0] == "it fails on the whole text: ZeroDivisionError: here"
    assert finding[1:3] == ["  channel content", "  text    'xyzzy'"]
    again = finding[3].split()
    assert again[:2] == ["again", "--seed"]
    ended = fuzz(f"{guards}:Fails", "--args", '{"word": "xyzzy"}', "--seed", again[2])
    assert ended.stdout.splitlines()[2:] == finding


@pytest.mark.parametrize("code", [0, 3])
def test_a_hook_that_ends_its_process_is_found(guards: str, code: int) -> None:
    ended = fuzz(f"{guards}:Leaves", "--args", json.dumps({"code": code}), "--seed", "1")
    assert (ended.returncode, ended.stderr) == (1, "")
    told = ended.stdout.splitlines()[-1]
    assert told.startswith(f"hook '{guards}:Leaves' ended its process while it saw '")
    assert "hunter2" in told
    assert "streaming" in told


def test_the_command_ends_with_0_if_nothing_is_found() -> None:
    ended = fuzz(BANNED, "--seconds", "1", "--secret", "Project Bluebird")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("nothing found\n")


@pytest.mark.parametrize("command", ["check", "fuzz"])
@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--args", "[1]", "a JSON object"),
        ("--args", "{", "a JSON object"),
        ("--hook-timeout", "0", "a number above 0"),
        ("--hook-load-timeout", "nan", "a number above 0"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    capsys: pytest.CaptureFixture[str], command: str, option: str, value: str, wanted: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["hooks", command, BANNED, option, value])
    assert f"argument {option}: '{value}' is not {wanted}" in capsys.readouterr().err


def test_the_command_says_what_it_needs() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; from proxy.commands.cli import main; main()"
    ended = fuzz(BANNED, code=code)
    assert ended.returncode == 2
    assert "install the extra 'testing' of weir-proxy" in ended.stderr


def test_the_command_says_which_hook_it_cannot_load() -> None:
    ended = fuzz("no.such.Hook")
    assert ended.returncode == 2
    assert ended.stderr.startswith("weir hooks fuzz: hook 'no.such.Hook' could not be imported")


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--seconds", "0", "'0' is not a number above 0"),
        ("--seconds", "nan", "'nan' is not a number above 0"),
        ("--seconds", "inf", "'inf' is not a number above 0"),
        ("--secret", "", "'' is not a text"),
    ],
)
def test_what_would_look_for_nothing_is_refused(option: str, value: str, reason: str) -> None:
    ended = fuzz(BANNED, option, value)
    assert ended.returncode == 2
    assert f"argument {option}: {reason}" in ended.stderr


def test_it_can_be_interrupted() -> None:
    command = [sys.executable, "-c", WEIR, "hooks", "fuzz", BANNED, "--seconds", "3600"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("fuzzing")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert (process.returncode, told) == (130, "weir: interrupted\n")
