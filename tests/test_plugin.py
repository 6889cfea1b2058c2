"""The package `examples/plugin`, which adds an engine, a guard, a parser and a command. Pip installs it."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from hooks.testing import assert_chunk_invariant, play
from tests.serving import ROOT, serving

WEIR = (sys.executable, "-m", "proxy")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed in."""
    source = shutil.copytree(ROOT / "examples" / "plugin", tmp_path_factory.mktemp("source") / "plugin")
    return installed(source, tmp_path_factory.mktemp("site"))


def installed(source: Path, site: Path) -> Path:
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", str(site)]
    subprocess.run([*pip, str(source)], check=True)
    return site


def variables(*sites: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*sites, ROOT)))}


def run(*arguments: str, env: dict[str, str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*WEIR, *arguments], env=env, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_package_adds_an_engine_a_guard_and_a_parser_by_name(site: Path, tmp_path: Path) -> None:
    options = ["--engine", "canned", "--engine-options", '{"text": "<plan>a zebra</plan>my zebra runs"}']
    guards = ["--hook", "no_zebra", "--reasoning-parser", "plan"]
    body = {"model": "canned", "messages": [{"role": "user", "content": "Hello?"}]}
    with serving(*options, *guards, weir=WEIR, cwd=tmp_path, env=variables(site)) as url:
        asked = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answered:
            message = json.load(answered)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("a horse", "my horse runs")


def test_its_engine_takes_no_defaults_of_other_models(site: Path, tmp_path: Path) -> None:
    (tmp_path / "weir.yaml").write_text(
        "logits_processors: [bad_words]\nvllm: {seed: 1}\nmodels:\n"
        "  own: {}\n  theirs: {engine: canned, engine_options: {text: hello}}\n"
    )
    checked = run("config", "check", "weir.yaml", env=variables(site), cwd=tmp_path)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_its_guard_finds_every_zebra_of_a_chunk() -> None:
    guard = f"{ROOT}/examples/plugin/acme_weir/guard.py:NoZebra"
    said = "zebra or zebra? A zebzebra, a zeb"
    assert play(guard, [said]).content == "horse or horse? A zebhorse, a zeb"
    assert_chunk_invariant(guard, said)


def test_a_package_adds_a_command(site: Path, tmp_path: Path) -> None:
    greeted = run("greet", "Wren", env=variables(site), cwd=tmp_path)
    assert (greeted.stdout, greeted.stderr) == ("Hello, Wren!\n", "")
    assert "say hello" in run("--help", env=variables(site), cwd=tmp_path).stdout


def test_the_list_of_guards_has_those_of_packages(site: Path, tmp_path: Path) -> None:
    listed = run("hooks", "list", env=variables(site), cwd=tmp_path)
    assert "no_zebra     Finds the word zebra." in listed.stdout


def test_a_name_of_two_packages_is_refused_where_it_is_used(site: Path, tmp_path: Path) -> None:
    entry_points = (
        "[weir.hooks]\nno_zebra = other:Guard\npii = other:Pii\n[weir.commands]\ngreet = other:greet\n"
    )
    write_package(tmp_path / "other", entry_points)
    env = variables(site, tmp_path / "other")
    assert "command 'greet' is in several packages: " in run("greet", "x", env=env, cwd=tmp_path).stderr
    for guard, packages in (("no_zebra", {"acme-weir", "other"}), ("pii", {"weir-proxy", "other"})):
        refused = run("serve", "--engine", "echo", "--hook", guard, env=env, cwd=tmp_path)
        assert refused.returncode == 1
        said = refused.stderr.partition(f"guard {guard!r} is in several packages: ")[2].split("\n")[0]
        assert set(said.split(", ")) == packages


def test_a_part_that_cannot_be_imported_names_itself_and_costs_only_its_users(tmp_path: Path) -> None:
    write_package(
        tmp_path / "other", "[weir.commands]\nbroken = other.gone:add\n[weir.engines]\nbad = other:Bad\n"
    )
    (tmp_path / "other" / "other").mkdir()
    (tmp_path / "other" / "other" / "__init__.py").write_text("1 / 0\n")
    env = variables(tmp_path / "other")
    assert "command 'broken' of other cannot be imported from other.gone:add: ZeroDivisionError" in (
        run("broken", env=env, cwd=tmp_path).stderr
    )
    assert "engine 'bad' of other cannot be imported from other:Bad" in (
        run("serve", "--engine", "bad", env=env, cwd=tmp_path).stderr
    )
    with serving("--engine", "echo", weir=WEIR, cwd=tmp_path, env=env):
        pass


def write_package(site: Path, entry_points: str) -> None:
    about = site / "other-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text(entry_points)
