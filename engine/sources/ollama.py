"""Models in a local Ollama store. A manifest names the file of a model's weights by its digest.

The layout is that of Ollama's own `manifest` package: `manifests/HOST/NAMESPACE/NAME/TAG`, and
`blobs/sha256-DIGEST`.
"""

import json
import os
from pathlib import Path

OLLAMA = "ollama:"
HOST, NAMESPACE, TAG = "registry.ollama.ai", "library", "latest"
WEIGHTS = "application/vnd.ollama.image.model"
ADAPTERS = ("application/vnd.ollama.image.adapter", "application/vnd.ollama.image.projector")
SYSTEM_STORE = Path("/usr/share/ollama/.ollama/models")
"""The folder of models of the service that Ollama's installer makes."""


def ollama_file(model: str) -> Path:
    """The GGUF file of `ollama:NAME`, `ollama:NAME:TAG` or `ollama:NAMESPACE/NAME:TAG`. Raises `ValueError`
    with what to do if the store has no such model."""
    name = model.removeprefix(OLLAMA)
    parts = _manifest_place(name)
    for store in _stores():
        manifest = store.joinpath("manifests", *parts)
        if manifest.is_file():
            return _weights(model, store, manifest)
    looked_in = " and ".join(map(str, _stores()))
    raise ValueError(
        f"{model}: there is no such model in {looked_in}. `ollama pull {name}` brings it; OLLAMA_MODELS names"
        " another store"
    )


def _manifest_place(name: str) -> tuple[str, ...]:
    *folders, last = name.split("/")
    last, _, tag = last.partition(":")
    parts = [*folders, last]
    if not all(parts) or len(parts) > 3 or {".", ".."}.intersection([*parts, tag]):
        raise ValueError(f"{OLLAMA}{name} is not of the form ollama:NAME or ollama:NAME:TAG")
    return (*(HOST, NAMESPACE)[: 3 - len(parts)], *parts, tag or TAG)


def _stores() -> list[Path]:
    if given := os.environ.get("OLLAMA_MODELS"):
        return [Path(given)]
    return [Path.home() / ".ollama/models", SYSTEM_STORE]


def _weights(model: str, store: Path, manifest: Path) -> Path:
    try:
        layers = json.loads(manifest.read_text())["layers"]
        digests = [layer["digest"] for layer in layers if layer["mediaType"] == WEIGHTS]
        kinds = {layer["mediaType"] for layer in layers}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{model}: the manifest {manifest} cannot be read") from error
    if len(digests) != 1 or kinds.intersection(ADAPTERS):
        raise ValueError(f"{model}: only a model of one GGUF file, without adapters or images, can be served")
    blob: Path = store / "blobs" / digests[0].replace(":", "-")
    if not blob.is_file():
        raise ValueError(f"{model}: its file {blob} is missing or cannot be read; `ollama pull` brings it")
    return blob
