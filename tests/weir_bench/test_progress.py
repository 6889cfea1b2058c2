"""A run shows its progress on a terminal."""

import io
import sys

import pytest

from tests.weir_bench.conftest import Scripted, hello, plan_for
from weir_bench.plan import Level
from weir_bench.progress import Progress
from weir_bench.runner import Runner


async def test_a_terminal_gets_a_progress_bar(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    server = await scripted(hello)
    await Runner(plan_for(server, levels=[Level(concurrency=2)], num_prompts=4), Progress()).run()
    assert "a, concurrency 2" in terminal.getvalue()
    assert "0 failed" in terminal.getvalue()
    before = terminal.getvalue()
    await Runner(plan_for(server), Progress(disable=True)).run()
    assert terminal.getvalue() == before
