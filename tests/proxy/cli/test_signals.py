"""Ctrl-C in commands that load models."""

import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.processes import WAIT_LIMIT, killed_at_end, wait_until
from tests.weir import ROOT, ForkedWeir

HOOK = """
import asyncio
import threading
from pathlib import Path

from hooks import emit

HAS_BEGUN = Path(__file__).with_name("has_begun")
never = threading.Event()


class InThread:
    async def start(self, models):
        HAS_BEGUN.touch()
        await asyncio.to_thread(never.wait)

    def __call__(self, chunk):
        return emit(chunk.pending)


class InPlace(InThread):
    def __init__(self):
        HAS_BEGUN.touch()
        while not never.wait(0.01):
            pass
"""


@pytest.mark.parametrize("hook", ["InThread", "InPlace"])
@pytest.mark.parametrize("command", ["replay", "eval-guard"])
def test_ctrl_c_ends_a_command_while_a_model_loads(command: str, hook: str, tmp_path: Path) -> None:
    (tmp_path / "loads.py").write_text(HOOK)
    has_begun = tmp_path / "has_begun"
    recording = ROOT / "tests" / "recordings" / "email.jsonl"
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as told:
        arguments = [command, str(recording), "--hook", f"{tmp_path}/loads.py:{hook}"]
        with killed_at_end(ForkedWeir(arguments, told, out, told)) as process:
            wait_until(has_begun.exists)
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(WAIT_LIMIT) == 130
        told.seek(0)
        assert told.read() == "weir: interrupted\n"
