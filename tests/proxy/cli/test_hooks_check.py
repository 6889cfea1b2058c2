"""`weir hooks check` prints a table, and says by its exit status whether the hook is right."""

import subprocess
from pathlib import Path

from tests.weir import run_weir

HOOKS = """
import os
from hooks import emit, terminate

class Leaks:
    '''Releases the first part of a word before it knows the rest.'''
    def __call__(self, chunk):
        return terminate("x") if "hunter2" in chunk.text else emit(chunk.pending)

class RaisesOften:
    def __call__(self, chunk):
        if "@" in chunk.text:
            raise ZeroDivisionError
        return emit(chunk.pending)

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
