"""Reads a settings file. Messages quote nothing of it: a line may hold a key."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Reads numbers such as `1e-6` too, as JSON and YAML 1.2 have them. PyYAML takes them for texts."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+\Z", re.ASCII), list("-+0123456789")
)


def read_yaml(file: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    """The file's options by name, and its tree, which has the lines. Raises `ValueError` with the reason if
    there are none."""
    try:
        text = file.read_text(encoding="utf-8")
        content, tree = yaml.load(text, _Loader), yaml.compose(text, _Loader)
    except OSError as error:
        raise ValueError(f"{file} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"{file} is not YAML{place}") from None
    content = {} if content is None else content
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError(f"{file} must hold options by name")
    return content, tree


def duplicates(tree: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """The names that a mapping below `tree` has twice, each with its second line. A reader of YAML takes the
    last value and drops the rest."""
    seen: set[int] = set()  # an alias may lead back to its own mapping
    nodes = [] if tree is None else [tree]
    while nodes:
        node = nodes.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for name, value in node.value:
                nodes.append(value)
                if not isinstance(name, yaml.ScalarNode):
                    continue
                if name.value in names:
                    yield name.start_mark.line + 1, name.value
                names.add(name.value)
