"""The rooms' floors and the packages' arrows, read off the files; and no torch where none is needed."""

import ast
import itertools
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tools.rooms import FLOORS, LOOSE, imports_of, modules, room_of, upward

ROOT = Path(__file__).parents[1]
MAX_ROOMS = {"engine": 15, "hooks": 10, "proxy": 10, "weir": 12}
MAX_LINES = 400


@pytest.mark.parametrize("package", FLOORS)
def test_a_room_imports_from_lower_floors_alone(package: str) -> None:
    assert upward(package) == []


@pytest.mark.parametrize("package", FLOORS)
def test_every_module_stands_in_one_of_few_rooms(package: str) -> None:
    rooms = {room_of(name)[1] for name in modules() if room_of(name)[0] == package}
    assert rooms == {*FLOORS[package], *LOOSE[package]}
    assert len({*FLOORS[package]} - LOOSE[package]) <= MAX_ROOMS[package]


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports = {name: set(imports_of(file)) - {name} for name, file in modules().items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_module_is_too_long() -> None:
    lengths = {name: len(file.read_text().splitlines()) for name, file in modules().items()}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES} == {}


def test_the_shapes_of_the_apis_know_no_http_library() -> None:
    assert [name for name, file in of("proxy.wire") if "aiohttp" in outside_imports(file)] == []


def test_only_the_admission_of_requests_touches_an_engine() -> None:  # contract 1.3
    """No endpoint goes round the hooks: none has an engine to ask, or can make a flow of its own. The types
    of flows and stages (`engine.streams.flow`) ask nothing."""
    asking = {"engine.protocol.relay", "engine.parsers", "engine.streams.feeding", "hooks.pipeline.driver"}
    touching = {
        name for name, file in of("proxy.http") if takes_an_engine(file) or asking & set(imports_of(file))
    }
    assert touching == {"proxy.http.admission"}


@pytest.mark.parametrize(
    ("code", "takes"),
    [
        ("route.model.engine", True),
        ("model.settings.engine", False),
        ("await route.model.engine_feed(request, flow)", True),
        ("await deployment.guard_models.generator(name)", True),
        ("deployment.guard_models.all", True),
        ("attrgetter('model.engine.info')(route)", True),
        ("attrgetter('settings.engine')(model)", False),
        ("getattr(model, 'engine')", True),
        ("operator.attrgetter('guard_models')", True),
    ],
)
def test_an_engine_is_found_under_each_name(code: str, takes: bool, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(f"async def f():\n    {code}\n")
    assert takes_an_engine(tmp_path / "module.py") is takes


def takes_an_engine(file: Path) -> bool:
    """Whether the file reads an attribute that holds engines, also by a string. The attribute `engine` of
    settings is an engine's name."""
    return any(
        name in ("engine", "engine_feed", "guard_models") and owner != "settings"
        for path in paths_read(ast.parse(file.read_text()))
        for owner, name in itertools.pairwise(["", *path])
    )


def paths_read(tree: ast.AST) -> Iterator[list[str]]:
    """The attributes that code reads, each behind the one that it is read of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield [getattr(node.value, "attr", ""), node.attr]
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("attrgetter", "getattr"):
                strings = [one.value for one in node.args if isinstance(one, ast.Constant)]
                yield from (text.split(".") for text in strings if isinstance(text, str))


def test_nothing_imports_what_prints() -> None:
    found = {
        name for name, file in modules().items() if any(i.startswith("proxy.cli") for i in imports_of(file))
    }
    assert {name for name in found if not name.startswith("proxy.cli")} == {"proxy.__main__"}


def of(room: str) -> list[tuple[str, Path]]:
    return [(name, file) for name, file in modules().items() if name == room or name.startswith(f"{room}.")]


def outside_imports(file: Path) -> set[str]:
    """The top-level names of all packages that the file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def ours(room: str, but: str = "") -> set[str]:
    """The project's modules that the room imports, its own left out. `but`: a part of it to leave out."""
    files = [file for name, file in of(room) if not (but and name.startswith(but))]
    found = {name for file in files for name in imports_of(file)}
    return {name for name in found if not name.startswith(room)}


def test_the_engine_knows_nothing_of_the_rest() -> None:
    assert ours("engine") == set()


def test_of_the_engine_hooks_know_values_streams_and_how_callers_take_turns() -> None:
    found = ours("hooks", but="hooks.testing") - {"engine.local.own_models"}
    assert {".".join(name.split(".")[:2]) for name in found} == {
        "engine.protocol",
        "engine.streams",
        "engine.turns",
    }


def test_the_library_is_hooks_and_values_and_no_server() -> None:
    """The wrappers of clients read and write what the proxy and its upstreams do."""
    core = ("running", "feeding", "streams", "answer", "guards", "__init__")
    files = [modules()["weir" if name == "__init__" else f"weir.{name}"] for name in core]
    found = {name for file in files for name in imports_of(file)}
    assert {name.split(".")[0] for name in found} == {"engine", "hooks", "weir"}
    assert {name for name in found if name.startswith("engine")} == {"engine.protocol"}
    using = {name for name, file in modules().items() if any(n.startswith("weir") for n in imports_of(file))}
    assert {name for name in using if not name.startswith(("weir", "proxy.cli.scan"))} == set()


def test_the_testing_kit_reads_recordings_as_well_and_parses_them() -> None:
    of_engine = {name for name in ours("hooks.testing") if not name.startswith("hooks")}
    rooms = {".".join(name.split(".")[:2]) for name in of_engine}
    assert rooms == {"engine.protocol", "engine.streams", "engine.parsers"}


def test_the_guards_that_ship_are_written_on_public_names_and_values() -> None:
    rooms = {".".join(name.split(".")[:2]) for name in ours("hooks.builtin")}
    assert rooms == {"hooks", "hooks.api", "hooks.detect", "hooks.json", "engine.protocol"}


@pytest.mark.parametrize(
    "module",
    [
        "proxy",
        "proxy.http.app",
        "proxy.cli.cli",
        "hooks",
        "hooks.pipeline.pipeline",
        "hooks.testing",
        "hooks.builtin.remote",
        "engine",
        "engine.protocol",
        "engine.parsers",
        "engine.sampling.logits_processors",
        "engine.sources.files",
        "engine.text.tokenizer",
    ]
    + [f"engine.upstream.{name}" for name in ("openai", "replay", "echo", "none")]
    + ["proxy.http.guard_api.routes"],
)
def test_no_torch_is_loaded_by(module: str) -> None:
    heavy = {"torch", "transformers", "opentelemetry"}
    code = f"import sys, {module}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_server_imports_no_code_that_its_settings_do_not_ask_for() -> None:
    others = "asyncpg jinja2 numpy opentelemetry redis tokenizers torch transformers yaml"
    unused = {*others.split(), "engine.streams.recorder", "hooks.workers.pool", "proxy.workers.supervisor"}
    unused |= {"hooks.workers.messages", "proxy.deployment.engine_process.remote"}
    code = f"import sys, proxy.cli.serve; print(*({unused} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert found.stdout.split() == []
