"""The packages' arrows and the size of rooms, read off the files; and no torch where none is needed."""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"proxy", "engine", "hooks"}
FILES = [file for name in (*OURS, "weir_bench") for file in (ROOT / name).rglob("*.py")]
MODULES = {".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): f for f in FILES}
MAX_MODULES = 15
MAX_LINES = 400


def modules_imported_by(file: Path) -> set[str]:
    """All imports count: those inside of functions and those for types alone as well."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{file}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found & MODULES.keys()


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports = {name: modules_imported_by(file) for name, file in MODULES.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_folder_holds_too_many_modules() -> None:
    folders = Counter(file.parent for file in FILES if file.name != "__init__.py")
    assert {str(folder): num for folder, num in folders.items() if num > MAX_MODULES} == {}


def test_no_module_is_too_long() -> None:
    lengths = {str(file): len(file.read_text().splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def imports_of(package: str, but: str = "") -> set[str]:
    found = set()
    for file in (ROOT / package).rglob("*.py"):
        if but and file.is_relative_to(ROOT / but):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    return {name for name in found if name.partition(".")[0] in OURS}


def test_the_engine_knows_nothing_of_the_rest() -> None:
    assert {name.partition(".")[0] for name in imports_of("engine")} == {"engine"}


def test_of_the_engine_hooks_know_values_how_names_are_found_and_how_callers_take_turns() -> None:
    imported = imports_of("hooks", but="hooks/testing")
    assert {name for name in imported if not name.startswith("hooks")} == {
        "engine.local.own_models",
        "engine.protocol.did_you_mean",
        "engine.protocol.fields.table",
        "engine.protocol.guard_models",
        "engine.protocol.import_path",
        "engine.protocol.prompt_size",
        "engine.protocol",
        "engine.protocol.tracing",
        "engine.turns.fair_queue",
        "engine.turns.prompt_threads",
    }


def test_the_testing_kit_reads_recordings_as_well_and_parses_them() -> None:
    of_engine = {name for name in imports_of("hooks/testing") if not name.startswith("hooks")}
    assert of_engine == {"engine.protocol", "engine.streams.recording", "engine.parsers"}


def test_the_load_generator_knows_only_how_to_read_a_stream() -> None:
    assert imports_of("weir_bench") == {"engine.upstream.sse"}


def test_the_guards_that_ship_are_written_on_public_names_and_values() -> None:
    found = {name for name in imports_of("hooks/builtin") if not name.startswith("hooks.builtin")}
    rooms = {".".join(name.split(".")[:2]) for name in found}
    assert rooms == {"hooks", "hooks.detect", "hooks.json", "engine.protocol.guard_models", "engine.protocol"}


@pytest.mark.parametrize(
    "module",
    [
        "proxy",
        "proxy.http.app",
        "weir_bench.cli",
        "proxy.cli.cli",
        "hooks",
        "hooks.pipeline.pipeline",
        "hooks.testing",
        "hooks.builtin.remote",
        "engine",
        "engine.protocol",
        "engine.parsers",
        "engine.sampling.logits_processors",
    ]
    + [f"engine.local.{name}" for name in ("openai", "replay", "echo")],
)
def test_no_torch_is_loaded_by(module: str) -> None:
    heavy = {"torch", "transformers", "opentelemetry"}
    code = f"import sys, {module}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
