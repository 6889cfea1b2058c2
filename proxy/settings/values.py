"""How an option reads a list, from YAML or from one text with commas, and a file's name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

File = Annotated[Path, AfterValidator(lambda file: Path(os.path.expanduser(file)))]
"""A file or a folder: `~` is the home folder."""


def parts(value: Any, read: Callable[[Any], Any] = lambda part: part) -> Any:
    """The parts of a list, each passed through `read`. The command line and the environment give a list as
    one text with commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, dict):
        value = [value]
    return list(map(read, value)) if isinstance(value, list | tuple) else value


Names = Annotated[list[str], BeforeValidator(parts)]


def _keys(value: Any) -> Any:
    # Unlike other lists, this one keeps empty parts: an unset variable is refused, not read as no key.
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Keys = Annotated[list[Annotated[SecretStr, Field(min_length=1)]], BeforeValidator(_keys)]
