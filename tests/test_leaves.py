"""The parts that can be left out: nothing imports them, and everything else works without their code."""

import json
import subprocess
import sys
import urllib.request
from functools import cache
from typing import NamedTuple

import pytest

from tests.serving import ROOT, serving
from tools.rooms import imports_of, modules


class Leaf(NamedTuple):
    modules: tuple[str, ...]
    """Its files and folders."""
    engine: tuple[str, ...]
    """Options of a server that could use the leaf, but does not."""
    neighbors: tuple[str, ...]
    """Tests of the rooms that the leaf stands in or is used from."""


GUARD = "examples/banned_phrase.py:BannedPhrase"
ECHO = ("--engine", "echo")
LOCAL = ("--max-model-len", "128")

LEAVES = {
    "vllm": Leaf(
        ("engine.vllm",),
        ECHO,
        ("tests/engine/upstream/test_echo.py", "tests/proxy/deployment/test_engines.py"),
    ),
    "the pool": Leaf(
        ("engine.upstream.pool",),
        ECHO,
        ("tests/engine/upstream/openai", "tests/engine/upstream/test_echo.py"),
    ),
    "guard models": Leaf(
        (
            *(
                "engine.core.classification",
                "engine.local.classification",
                "engine.models.classification_heads",
            ),
            *("hooks.builtin.classifier", "hooks.builtin.classifier_models", "hooks.builtin.guard_prompts"),
            *("hooks.builtin.judge", "hooks.builtin.judge_families"),
            *("hooks.builtin.stream_guard", "hooks.builtin.stream_heads"),
        ),
        LOCAL,
        (
            "tests/engine/core/test_engine_core.py",
            "tests/hooks/builtin/test_phrases.py",
            # Without test_describe.py, whose guards include the leaf's.
            *(f"tests/hooks/loading/test_{name}.py" for name in ("arguments", "closing", "loader", "start")),
        ),
    ),
    "probes": Leaf(
        (
            *("engine.execution.probes", "hooks.builtin.probe", "hooks.builtin.probe_scores"),
            "proxy.cli.probes",
        ),
        LOCAL,
        ("tests/engine/execution/test_model_runner.py", "tests/hooks/builtin/test_repetition.py"),
    ),
    "the page and the operator's store": Leaf(
        (
            *("proxy.http.page", "proxy.http.admin", "proxy.service.operator", "proxy.storage.operator"),
            *("proxy.cli.report_source", "proxy.cli.shadow", "proxy.cli.store", "proxy.cli.usage"),
        ),
        ECHO,
        (
            "tests/proxy/http/test_handlers.py",
            "tests/proxy/http/test_event_stream.py",
            "tests/proxy/telemetry",
        ),
    ),
    "the guard service": Leaf(
        ("proxy.http.guard_api", "proxy.wire.guard_api"),
        ECHO,
        (
            "tests/proxy/http/test_handlers.py",
            "tests/proxy/wire/openai/test_moderations.py",
            "tests/engine/upstream/test_echo.py",
        ),
    ),
    "injection": Leaf(
        ("hooks.builtin.injection", "hooks.builtin.injection_model"),
        ECHO,
        ("tests/hooks/builtin/test_wrap.py", "tests/hooks/builtin/test_repetition.py"),
    ),
    "receipts": Leaf(
        ("proxy.service.receipts", "proxy.storage.receipts", "proxy.cli.receipts"),
        ECHO,
        ("tests/proxy/http/test_handlers.py", "tests/proxy/cli/test_cli.py"),
    ),
    "eval-guard": Leaf(
        ("proxy.cli.evaluation",), ECHO, ("tests/proxy/cli/test_cli.py", "tests/proxy/cli/labelled")
    ),
}
each_leaf = pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)


@cache
def imports() -> dict[str, frozenset[str]]:
    """Of each module."""
    return {name: frozenset(imports_of(file)) for name, file in modules().items()}


@each_leaf
def test_nothing_else_imports_a_leaf(leaf: Leaf) -> None:
    inside = tuple(f"{name}." for name in leaf.modules)
    assert all(any(f"{name}.".startswith(one) for name in imports()) for one in inside)
    importing = {
        f"{name} -> {imported}"
        for name, all_imported in imports().items()
        if not f"{name}.".startswith(inside)
        for imported in all_imported
        if f"{imported}.".startswith(inside)
    }
    assert importing == set()


@each_leaf
def test_a_guarded_stream_is_served_without_a_leaf(leaf: Leaf) -> None:
    with serving(*leaf.engine, "--hook", GUARD, weir=blocked(leaf, "proxy")) as url:
        body = {"prompt": "I am on project bluebird.", "stream": True, "echo": True, "max_tokens": 4}
        asked = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answered:
            events = [line[6:] for line in answered.read().decode().splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events]
    assert "".join(choice["text"] for choice in choices) == "I am on "
    assert choices[-1]["finish_reason"] == "content_filter"


@pytest.mark.slow
@each_leaf
def test_the_neighbors_of_a_leaf_pass_without_it(leaf: Leaf) -> None:
    """`make test` runs the same tests with the leaf."""
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x")
    run = subprocess.run(
        [*blocked(leaf, "pytest"), *quiet, *leaf.neighbors],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout


def blocked(leaf: Leaf, module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.blocked", ",".join(leaf.modules), module)
