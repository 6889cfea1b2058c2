"""Reads a settings file. Messages quote nothing of it: a line may hold a key."""

from pathlib import Path
from typing import Any

import yaml


def read_yaml(file: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    """The file's options by name, and its tree, which has the lines. Raises `ValueError` with the reason if
    there are none."""
    try:
        text = file.read_text(encoding="utf-8")
        content, tree = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
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
