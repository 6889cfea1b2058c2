"""Public text that is installed with Python and Weir's packages: what perplexities are measured on."""

import importlib
import inspect
from importlib.metadata import distribution

MODULES = ("decimal", "random", "statistics", "textwrap", "difflib", "fractions", "heapq", "zipfile")
"""Modules of the standard library whose docstrings explain much."""
PACKAGES = ("torch", "transformers", "tokenizers", "regex")
"""Packages of the extra `engine` and `guards` whose pages on the package index are long."""


def texts() -> list[str]:
    """One text of each source, thousands of characters long."""
    return [*map(_docstrings, MODULES), *map(_page, PACKAGES)]


def _docstrings(module: str) -> str:
    found = importlib.import_module(module)
    parts = [inspect.getdoc(found)]
    names = getattr(found, "__all__", None) or [name for name in dir(found) if name[0] != "_"]
    for name in names:
        part = getattr(found, name)
        if inspect.isclass(part) or inspect.isroutine(part):
            parts.append(inspect.getdoc(part))
            methods = vars(part).values() if inspect.isclass(part) else ()
            parts += [inspect.getdoc(method) for method in methods if inspect.isroutine(method)]
    return "\n\n".join(dict.fromkeys(filter(None, parts)))


def _page(package: str) -> str:
    described = distribution(package).read_text("METADATA") or ""
    return described.partition("\n\n")[2]
