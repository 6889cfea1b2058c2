"""`weir bench` against `weir serve`, each a process of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson

from tests.serving import ROOT


def test_bench_measures_weir_serve(weir_serve: Callable[..., str], tmp_path: Path) -> None:
    json, html = tmp_path / "out.json", tmp_path / "out.html"
    url = weir_serve("--engine", "echo")
    load = ["--concurrency", "1,4", "--num-prompts", "8", "--max-tokens", "20", "--ignore-eos"]
    ran = subprocess.run(
        [sys.executable, "-m", "proxy", "bench", "--url", url, *load, "--json", json, "--html", html],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "concurrency 4" in ran.stdout
    assert all("of a core" in line for line in ran.stderr.splitlines()), "no warning but of the client's load"
    runs = orjson.loads(json.read_bytes())["runs"]
    assert [(run["concurrency"], run["completed"], run["failed"]) for run in runs] == [(1, 8, 0), (4, 8, 0)]
    assert all(run["total_output_tokens"] == 8 * 20 for run in runs)
    assert all(run["tokens_per_chunk"] == 1 for run in runs)
    assert html.read_text().startswith("<!DOCTYPE html>")
