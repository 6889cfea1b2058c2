"""Real files of this machine: texts in which a guard should find next to nothing."""

import gzip
import random
import site
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cases.case import Case

_PER_FILE = 60_000
"""Most characters of one file that are taken."""
_KINDS: tuple[tuple[str, str, str, int], ...] = (
    # (name, directory, pattern, characters)
    ("source of the standard library", sysconfig.get_path("stdlib"), "*.py", 1_500_000),
    ("source of packages", "SITE", "*.py", 1_500_000),
    ("documents and data of packages", "SITE", "*.[mtjr][dxss]*", 1_000_000),
    ("documents", "/usr/share/doc", "*", 1_000_000),
    ("Perl", "/usr/share/perl", "*.p[lm]", 500_000),
    ("logs", "/var/log", "*", 500_000),
    ("manuals", "/usr/share/man", "*.gz", 500_000),
)


def cases(seed: int = 1) -> Iterator[Case]:
    """Return the beginnings of files, about 6 MB."""
    packages = next((path for path in site.getsitepackages() if path.endswith("-packages")), "")
    for name, directory, pattern, budget in _KINDS:
        root = Path(packages if directory == "SITE" else directory)
        paths = sorted(path for path in root.rglob(pattern) if _is_fit(path))
        random.Random(f"{seed} {name}").shuffle(paths)
        for path in paths:
            if budget <= 0:
                break
            text = _text(path)
            if text:
                yield Case("files", f"{name}|{path}", text)
                budget -= len(text)


_OWN = {"phonenumbers", "stdnum", "node_modules"}
"""Packages whose files are full of real examples of what the guards find."""


def _is_fit(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and not _OWN.intersection(path.parts)


def _text(path: Path) -> str | None:
    """The beginning of a file of UTF-8 text; None: it is of another kind."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        return data.decode()[:_PER_FILE] if b"\0" not in data[:4096] else None
    except (OSError, UnicodeDecodeError, EOFError):
        return None
