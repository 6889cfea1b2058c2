"""Changes one place of the code at a time, and shows which changes no test notices.

    python -m tools.mutants hooks/pipeline [hooks/detect ...] [--each 5] [--seed 1]

Each file gets `--each` changes, drawn at random: a condition is negated, a statement is left out, a
comparison or a truth value is turned round, or a number is one more. The tests beside the file
(`hooks/pipeline/x.py`: those in `tests/hooks/pipeline`) run on a copy of the checkout, until the first that
fails: first the tests that name the file, then the others. Each run is a fork of this process, which has
imported the large libraries. Exits with 1 if a change survives. A change that means the same survives
rightly: look at each.
"""

import argparse
import ast
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("engine", "hooks", "proxy", "tests", "benchmarks", "tools", "examples", "docs", "pyproject.toml")
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
TIMEOUT = 30
"""Seconds for a test. A change that makes one hang counts as noticed."""


def places_of(source: str) -> list[int]:
    """The places of a module that can be changed. Decorators stay: most only make a class cheaper. So do
    functions without code, as those of protocols."""
    nodes = [*ast.walk(ast.parse(source))]
    kept = [one for node in nodes for one in getattr(node, "decorator_list", ())]
    kept += [
        node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_empty(node)
    ]
    fixed = {id(node) for one in kept for node in ast.walk(one)}
    return [place for place, node in enumerate(nodes) if id(node) not in fixed and _change(node)]


def mutant_of(source: str, place: int) -> tuple[int, str]:
    """The line of a place, and the module's source with the place changed."""
    tree = ast.parse(source)
    node = [*ast.walk(tree)][place]
    assert isinstance(node, ast.expr | ast.stmt)
    line = node.lineno
    _change(node)
    return line, ast.unparse(ast.fix_missing_locations(tree))


def _is_empty(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it has a docstring or an ellipsis, and no more."""
    return all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in function.body)


def _change(node: ast.AST) -> bool:
    """Change the node, if it is of a kind that is changed."""
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Compare(ops=[op]) if type(op) in TURNED:
            node.ops = [TURNED[type(op)]()]
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            vars(node).update(vars(ast.parse("...").body[0]))
            node.__class__ = ast.Expr
        case _:
            return False
    return True


class Copy:
    """A copy of the checkout, which is the working folder of this process, and its tests."""

    def __init__(self, folder: Path) -> None:
        for part in PARTS:
            (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, folder / part)
        self._tried: set[Path] = set()
        os.chdir(folder)
        sys.path[0] = str(folder)
        del sys.modules["tools"]
        os.environ["OMP_NUM_THREADS"] = "1"  # as in the tests; a process with one thread can be forked
        import torch  # noqa: F401 - most of the time that a run of tests takes to start
        import transformers  # noqa: F401

    def survivors(self, file: Path, most: int, rng: random.Random) -> Iterator[str]:
        """Yield the place of each of `most` changes that no test notices."""
        source = file.read_text()
        places = places_of(source)
        if not places:
            return
        self._try(Path("tests", file.parent))
        batches = _tests_of(file)
        for place in rng.sample(places, min(most, len(places))):
            line, mutant = mutant_of(source, place)
            file.write_text(mutant)
            if not any(map(_fails, batches)):
                yield f"{file}:{line}: {source.splitlines()[line - 1].strip()}"
        shutil.copy2(ROOT / file, file)

    def _try(self, tests: Path) -> None:
        """Run the tests once without a change, which also compiles the modules. Raises `SystemExit` if they
        fail."""
        if tests in self._tried:
            return
        self._tried.add(tests)
        sys.dont_write_bytecode = False
        if _fails([str(tests)]):
            raise SystemExit(f"{tests} fails without a change")
        sys.dont_write_bytecode = True


def _tests_of(file: Path) -> list[list[str]]:
    """The tests beside a file, in batches: those with its name, those that import it, the others."""
    module = ".".join(file.with_suffix("").parts)
    batches: list[list[str]] = [[], [], []]
    for test in sorted(Path("tests", file.parent).rglob("test_*.py")):
        place = 0 if file.stem in test.stem else 1 if module in test.read_text() else 2
        batches[place].append(str(test))
    return [batch for batch in batches if batch]


def _fails(tests: Sequence[str]) -> bool:
    """Whether a test fails, or hangs."""
    run = get_context("fork").Process(target=_run, args=(tests,))
    run.start()
    run.join(20 * TIMEOUT)
    run.kill()
    run.join()
    return run.exitcode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def _run(tests: Sequence[str]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    options = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile", "mutants"]
    options += ["--timeout", str(TIMEOUT)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported already
    sys.exit(pytest.main([*options, *tests]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Show which changes of the code no test notices.")
    parser.add_argument("paths", nargs="+", type=Path, help="files, or folders of them")
    parser.add_argument("--each", type=int, default=5, help="changes of each file (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    num_left = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for path in options.paths:
            for file in [path] if path.is_file() else sorted(path.glob("*.py")):
                rng = random.Random(f"{options.seed} {file}")  # a file's changes depend on no other file
                for place in copy.survivors(file, options.each, rng):
                    num_left += 1
                    print(place, flush=True)
                print(f"{file}: done", flush=True)
    print(f"{num_left} changes were not noticed.")
    raise SystemExit(num_left > 0)


if __name__ == "__main__":
    main()
