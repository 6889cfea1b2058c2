"""`weir hooks check` prints a table, and says by its exit status whether the hook is right."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.weir import run_weir

HOOKS = """
import os
import time
from hooks import emit, hold, terminate

class Leaks:
    '''Releases the first part of a word before it knows the rest.'''
    def __call__(self, chunk):
        return terminate("x") if "hunter2" in chunk.text else emit(chunk.pending)

class RaisesOften:
    def __call__(self, chunk):
        if "@" in chunk.text:
            raise ZeroDivisionError
        return emit(chunk.pending)

class OnACertainWord:
    def __call__(self, chunk):
        if "xyzzy" in chunk.text:
            raise ZeroDivisionError
        return emit(chunk.pending)

class AsksAService:
    def __call__(self, chunk):
        if not chunk.request.request_id.startswith("weir-self-test"):
            time.sleep(0.2)
        return emit(chunk.pending)

class HoldsAll:
    def __call__(self, chunk):
        return emit(chunk.pending) if chunk.is_final else hold()

class HoldsTen(HoldsAll):
    max_hold = "ten"

class Exits:
    def __init__(self, code=0):
        self.code = code
    def __call__(self, chunk):
        if "card" in chunk.text.lower():
            os._exit(self.code)
        return emit(chunk.pending)
"""


def check(folder: Path, hook: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (folder / "guards.py").write_text(HOOKS)
    return run_weir("hooks", "check", hook, *options)


@pytest.mark.slow
def test_a_hook_that_changes_nothing_is_told_so(tmp_path: Path) -> None:
    ran = check(tmp_path, f"{tmp_path}/guards.py:OnACertainWord")
    assert ran.returncode == 0
    told = "this hook changed none of the texts; this shows nothing about what it finds (--text, --secret)"
    assert ran.stdout.splitlines()[-2:] == [told, "not tried: whether a secret leaves (--secret)"]


def test_a_hook_that_fails_on_a_certain_word_fails_on_a_text_that_has_it(tmp_path: Path) -> None:
    ran = check(tmp_path, f"{tmp_path}/guards.py:OnACertainWord", "--text", "It is xyzzy.")
    assert ran.returncode == 1
    assert "text 1: the hook fails on the whole text" in ran.stdout


@pytest.mark.slow
def test_a_secret_that_leaves_is_shown(tmp_path: Path) -> None:
    ran = check(tmp_path, "examples/banned_phrase.py:BannedPhrase", "--secret", "project bluebird")
    assert ran.returncode == 1
    assert "secret 1: 'project bluebird' is released, begun in the text that the output" in ran.stdout
    (row,) = (line.split() for line in ran.stdout.splitlines() if line.startswith("secret 1  "))
    assert row[3:5] == ["leaks", str(len("project bluebird"))]
    ran = check(tmp_path, "examples/order_numbers.py:OrderNumbers", "--secret", "ORD-2026-000123")
    assert ran.returncode == 0
    assert "this hook changed none" not in ran.stdout


@pytest.mark.slow
def test_a_hook_that_holds_the_whole_answer_is_warned_of(tmp_path: Path) -> None:
    ran = check(tmp_path, f"{tmp_path}/guards.py:HoldsAll")
    assert ran.returncode == 0
    assert "this hook holds every text to its end" in ran.stdout


@pytest.mark.parametrize("command", ["check", "fuzz"])
def test_a_max_hold_that_is_no_number_is_an_error(tmp_path: Path, command: str) -> None:
    (tmp_path / "guards.py").write_text(HOOKS)
    ran = run_weir("hooks", command, f"{tmp_path}/guards.py:HoldsTen")
    assert ran.returncode == (1 if command == "check" else 2)
    assert ran.stderr.endswith("HoldsTen': max_hold is a number of characters, 0 or more, not 'ten'\n")


def test_the_table_and_the_exit_status_tell_of_a_hook_that_leaks(tmp_path: Path) -> None:
    ran = check(tmp_path, f"{tmp_path}/guards.py:Leaks")
    assert ran.returncode == 1
    assert "reasoning: not as in one chunk when cut into tokens" in ran.stdout
    assert ran.stdout.splitlines()[0].split()[:4] == ["recording", "runs", "same", "leaked"]


def test_a_failure_that_repeats_is_logged_once(tmp_path: Path) -> None:
    ran = check(tmp_path, f"{tmp_path}/guards.py:RaisesOften")
    assert ran.stdout.count("the hook fails on the whole text") > 1
    assert [line.split(" at ")[0] for line in ran.stderr.splitlines()] == [
        f"ERROR: hook {tmp_path}/guards.py:RaisesOften failed: ZeroDivisionError"
    ]


def test_rows_are_printed_before_the_hook_ends_its_process(tmp_path: Path) -> None:
    ran = check(tmp_path, f"{tmp_path}/guards.py:Exits", "--args", '{"code": 3}')
    assert ran.returncode == 1
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["recording", "prose", "e-mail"]
    assert "ended its process" in ran.stderr


def test_a_hook_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    ran = check(tmp_path, "no.such.Hook")
    assert ran.returncode == 1
    assert ran.stderr.startswith("weir hooks check: hook 'no.such.Hook' could not be imported")


def test_a_check_ends_at_its_limit_and_advises_a_fake(tmp_path: Path) -> None:
    ran = check(tmp_path, f"{tmp_path}/guards.py:AsksAService", "--limit", "4")
    assert ran.returncode == 1
    assert "the 4 s of --limit ended while it " in ran.stderr  # was loaded, or saw a recording
    assert "check it with a fake in the service's place" in ran.stderr


def test_a_terminal_shows_each_step_and_keeps_the_rows_alone(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(HOOKS)
    command = [sys.executable, "-m", "proxy", "hooks", "check", f"{tmp_path}/guards.py:Leaks"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the terminal's other end is closed
            while data := os.read(ours, 4096):
                shown += data
        assert process.stdout is not None
        rows = process.stdout.read().splitlines()
    os.close(ours)
    lines = shown.decode().split("\r\x1b[K")
    assert "it saw the recording 'prose', cut at 1 (3 of " in "".join(lines)
    assert lines[-1] == ""
    assert not any("it saw" in row for row in rows)
