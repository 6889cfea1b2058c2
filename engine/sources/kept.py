"""Keeps what transformers makes of a model's small files, for later starts.

transformers takes more than a second to import, and imports torch. What it makes of a configuration and of a
tokenizer's files depends on these files and on its version alone. So it is asked once: later starts, and
processes that have no model, read its answer.
"""

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path

from engine.protocol.cache_folder import cache_folder

logger = logging.getLogger("weir.engine")

FORMAT = b"1"
"""Another one, and what was kept before is made again."""
MAKERS = ("transformers", "tokenizers")
"""The packages whose versions an answer depends on."""
MOST_FILES = 32


def kept(kind: str, inputs: Iterable[bytes], make: Callable[[], bytes]) -> bytes:
    """Return what `make` gives: by this call, or by an earlier one for the same `inputs`, on which alone it
    depends. It is kept if the cache's folder can be written."""
    try:
        file = cache_folder() / "models" / f"{kind}-{_digest(inputs)}"
    except OSError:
        return make()
    if (found := _read(file)) is None:
        found = make()
        _write(file, found)
    return found


def small_files(folder: Path, patterns: Iterable[str]) -> list[bytes]:
    """The inputs that a model's folder is: its place, which transformers looks at too, and its files."""
    inputs = [os.fsencode(folder)]
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}):
        inputs += [os.fsencode(path.relative_to(folder)), path.read_bytes()]
    return inputs


def _digest(inputs: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in (FORMAT, *(version(name).encode() for name in MAKERS), *inputs):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _read(file: Path) -> bytes | None:
    """None for a file that is missing, and for one that was changed since it was written."""
    with contextlib.suppress(OSError):
        stored = file.read_bytes()
        check, content = stored[:32], stored[32:]
        if hashlib.sha256(content).digest() == check:
            return content
    return None


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as written:
            written.write(hashlib.sha256(content).digest() + content)
        os.replace(written.name, file)  # atomic: another process may read or write it now
        newest_first = sorted(file.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in newest_first[MOST_FILES:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        logger.info("what the model's files say is not kept for the next start: %s", error)
