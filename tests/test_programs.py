"""Benchmarks and tools that no test runs still name only what the project has."""

import subprocess
import sys

IMPORT_ALL = """
import importlib, pkgutil
import benchmarks, tools
for package in (benchmarks, tools):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""


def test_every_benchmark_and_tool_can_be_imported() -> None:
    """In a process of its own: some of them set what the libraries read when they are imported."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
