"""How an option reads a list, from YAML or from one text with commas, and a file's name."""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from engine.protocol.options import parts

File = Annotated[Path, AfterValidator(lambda file: Path(os.path.expanduser(file)))]
"""A file or a folder: `~` is the home folder."""


Names = Annotated[list[str], BeforeValidator(parts)]


def _keys(value: Any) -> Any:
    # Unlike other lists, this one keeps empty parts: an unset variable is refused, not read as no key.
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Keys = Annotated[list[Annotated[SecretStr, Field(min_length=1)]], BeforeValidator(_keys)]
