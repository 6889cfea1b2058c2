"""Changes one place of the code at a time, and shows which changes no test notices.

    python -m tools.mutants hooks/pipeline [hooks/detect ...] [--each 5] [--seed 1]

Each file gets `--each` changes, drawn at random: a condition is negated, a statement is left out, a
comparison or a truth value is turned round, or a number is one more. The tests beside the file
(`hooks/pipeline/x.py`: those in `tests/hooks/pipeline`) run on a copy of the checkout, until the first that
fails. Exits with 1 if a change survives. A change that means the same survives rightly: look at each.
"""

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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
TIMEOUT = 300.0
"""Seconds for the tests of one change. A change that makes them hang counts as noticed."""


def mutants_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield each change of a module: its line, and the module's source with it."""
    for number in range(len([*ast.walk(ast.parse(source))])):
        tree = ast.parse(source)
        node = [*ast.walk(tree)][number]
        line = getattr(node, "lineno", 0)
        if _change(node):
            yield line, ast.unparse(ast.fix_missing_locations(tree))


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


def is_noticed(copy: Path, tests: Path) -> bool:
    """Whether a test fails, or hangs."""
    options = ("-x", "-p", "no:cacheprovider", "--numprocesses", "2")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(tests)],
            cwd=copy,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def survivors(copy: Path, file: Path, rng: random.Random, most: int) -> Iterator[str]:
    """Yield the place of each change of a file that no test notices. Raises `SystemExit` if the tests fail
    without a change."""
    tests = Path("tests", file.parent)
    if is_noticed(copy, tests):
        raise SystemExit(f"{tests} fails without a change")
    source = file.read_text()
    made = [*mutants_of(source)]
    for line, mutant in rng.sample(made, min(most, len(made))):
        (copy / file).write_text(mutant)
        if not is_noticed(copy, tests):
            yield f"{file}:{line}: {source.splitlines()[line - 1].strip()}"
    (copy / file).write_text(source)


def main() -> None:
    parser = argparse.ArgumentParser(description="Show which changes of the code no test notices.")
    parser.add_argument("paths", nargs="+", type=Path, help="files, or folders of them")
    parser.add_argument("--each", type=int, default=5, help="changes of each file (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, num_left = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in PARTS:
            (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, copy / part)
        for path in options.paths:
            for file in [path] if path.is_file() else sorted(path.glob("*.py")):
                for place in survivors(copy, file, rng, options.each):
                    num_left += 1
                    print(place, flush=True)
                print(f"{file}: done", flush=True)
    print(f"{num_left} changes were not noticed.")
    raise SystemExit(num_left > 0)


if __name__ == "__main__":
    main()
