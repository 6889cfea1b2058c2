"""`weir hooks fuzz` prints its finding, and says by its exit status whether there is one."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.processes import killed_at_end
from tests.weir import ROOT, PipedWeir, run_weir

ORDERS = f"{ROOT}/examples/order_numbers.py:OrderNumbers"
BANNED = f"{ROOT}/examples/banned_phrase.py:BannedPhrase"

GUARDS = """
import os
from hooks import emit

class Fails:
    def __init__(self, word):
        self.word = word
    def __call__(self, chunk):
        if self.word in chunk.text:
            raise ZeroDivisionError("here")
        return emit(chunk.pending)

class Exits:
    def __init__(self, code):
        self.code = code
    def __call__(self, chunk):
        if "hunter2" in chunk.text:
            os._exit(self.code)
        return emit(chunk.pending)
"""


@pytest.fixture
def guards(tmp_path: Path) -> str:
    (tmp_path / "guards.py").write_text(GUARDS)
    return f"{tmp_path}/guards.py"


fuzz = partial(run_weir, "hooks", "fuzz")


def test_a_finding_is_printed_with_the_seed_that_finds_it_again(guards: str) -> None:
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
def test_a_hook_that_ends_its_process_is_reported(guards: str, code: int) -> None:
    ended = fuzz(f"{guards}:Exits", "--args", json.dumps({"code": code}), "--seed", "1")
    assert (ended.returncode, ended.stderr) == (1, "")
    said = ended.stdout.splitlines()[-1]
    assert said.startswith(f"hook '{guards}:Exits' ended its process while it saw '")
    assert "hunter2" in said
    assert "streaming" in said


def test_the_exit_status_is_0_if_nothing_is_found() -> None:
    ended = fuzz(ORDERS, "--seconds", "0.3", "--secret", "ORD-2026-000123")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("nothing found\n")


def test_the_ways_in_which_a_secret_leaves_are_printed() -> None:
    ended = fuzz(BANNED, "--secret", "Project Bluebird", "--text", "Say Project Bluebird twice.")
    assert (ended.returncode, ended.stderr) == (1, "")
    lines = ended.stdout.splitlines()
    assert lines[1] == "'Project Bluebird' is released, in a tool's name, not cut: in a tool's name, output 0"
    assert "  lead    'Say P'" in lines
    assert not any("again" in line or "nothing found" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "whether a secret leaves (--secret)"), (("--secret", "ORD-2026-000123"), "base64 and other codes")],
)
def test_what_was_not_tried_is_named_where_nothing_is_found(options: tuple[str, ...], said: str) -> None:
    ended = fuzz(ORDERS, "--seconds", "0.3", *options)
    *_, not_tried, found = ended.stdout.splitlines()
    assert found == "nothing found"
    assert not_tried.startswith("not tried: ")
    assert said in not_tried


def test_a_missing_library_is_named() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; from proxy.cli.cli import main; main()"
    command = [sys.executable, "-c", code, "hooks", "fuzz", BANNED]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "install the extra 'testing' of weir-proxy" in ended.stderr


def test_a_hook_that_cannot_be_loaded_is_named() -> None:
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
def test_options_that_make_no_sense_are_refused(option: str, value: str, reason: str) -> None:
    ended = fuzz(BANNED, option, value)
    assert ended.returncode == 2
    assert f"argument {option}: {reason}" in ended.stderr


def test_ctrl_c_ends_the_command() -> None:
    with killed_at_end(PipedWeir("hooks", "fuzz", BANNED, "--seconds", "3600")) as process:
        assert process.stdout.readline().startswith("fuzzing")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (130, "weir: interrupted\n")
