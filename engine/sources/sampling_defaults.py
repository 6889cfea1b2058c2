"""The sampling that a model's authors recommend, for requests that leave it open."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.sources.gguf_file import GgufFile
from engine.sources.names import located

logger = logging.getLogger("weir.engine")

GGUF_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}
"""By the field of a request, the end of the key in a GGUF file. vLLM takes the same fields."""
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_k": (0, 2**31),
    "top_p": (1e-6, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
}
"""The least and the largest value of each field."""


def sampling_defaults_of(model: str) -> dict[str, float]:
    """The values of `generation_config.json`, or of a GGUF file's `general.sampling`, by the request's field.
    Without these there are none. A value that no request may have is left out, and logged. Raises
    `ValueError` for a model that is not found."""
    path = located(model, with_weights=False)
    stored = _of_file(path) if path.is_file() else _of_folder(path)
    found: dict[str, float] = {}
    for name, (least, most) in RANGES.items():
        value = stored.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            logger.warning("%s recommends a %s that is out of range: it is not taken", model, name)
            continue
        found[name] = int(value) if name == "top_k" else float(value)
    return found


def _of_folder(path: Path) -> Mapping[str, Any]:
    try:
        stored = json.loads((path / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there is none
        return {}
    return stored if isinstance(stored, dict) else {}


def _of_file(path: Path) -> Mapping[str, Any]:
    metadata = GgufFile(path).metadata
    return {name: metadata.get(f"general.sampling.{key}") for name, key in GGUF_KEYS.items()}
