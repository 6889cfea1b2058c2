"""The folder for what later starts need not make again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Compiled kernels, times of trials, and what models' small files say. Raises `OSError` if the user has
    no home."""
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "weir"
    try:
        return Path.home() / ".cache/weir"
    except RuntimeError as error:  # the system does not know this user
        raise OSError("no folder for compiled kernels: set XDG_CACHE_HOME") from error
