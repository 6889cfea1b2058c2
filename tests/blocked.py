"""Runs a Python module as `python -m` does, while some of Weir's modules cannot be imported.

python -m tests.blocked engine.vllm,proxy.http.page pytest tests/engine/local
"""

import runpy
import sys
from importlib.abc import MetaPathFinder


class Blocked(MetaPathFinder):
    """Finds no module of these names, nor one inside them."""

    def __init__(self, names: list[str]) -> None:
        self._names = tuple(f"{name}." for name in names)

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if f"{fullname}.".startswith(self._names):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


if __name__ == "__main__":
    names, module, *arguments = sys.argv[1:]
    sys.meta_path.insert(0, Blocked(names.split(",")))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
