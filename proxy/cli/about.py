"""The installed version, its commit, and whether its files are as they were built."""

import base64
import hashlib
import json
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path

from proxy import __version__

DISTRIBUTION = "weir-proxy"
COMMIT = Path(__file__).parents[1] / "commit.txt"
"""An archive by git, from which releases are built, has the commit and its time there."""
LIBRARIES = ("aiohttp", "pydantic", "torch", "transformers", "vllm", "uvloop")


def about() -> str:
    """One line for each: version, commit, files, Python, libraries."""
    return "\n".join([f"weir {__version__}", *_lines()])


def _lines() -> Iterator[str]:
    yield f"commit: {commit() or 'unknown'}"
    try:
        yield f"files: {_state(distribution(DISTRIBUTION))}"
    except PackageNotFoundError:
        yield "files: not installed as a package"
    yield f"python: {platform.python_version()} on {platform.platform()}"
    yield f"libraries: {', '.join(_libraries())}"


def commit() -> str:
    """The commit that the code comes from, and its time. Empty if nothing says it."""
    text = COMMIT.read_text().strip() if COMMIT.exists() else ""
    return _checked_out() if text.startswith("$") else text


def _checked_out() -> str:
    root = COMMIT.parents[1]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "log", "-1", "--format=%H %cI"]
    try:
        said = subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{said}, a checkout"


def _state(installed: Distribution) -> str:
    """Whether the files are those of the wheel, whose list of digests has the digest that is told."""
    if json.loads(installed.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        return f"a checkout at {COMMIT.parents[1]}"
    digests = {file: file.hash.value for file in installed.files or () if file.hash is not None}
    changed = [
        str(file) for file, digest in digests.items() if not _is_as_built(Path(str(file.locate())), digest)
    ]
    # Scripts outside the packages are the installer's: their first line names this machine's Python.
    built = sorted(f"{file},{digest}" for file, digest in digests.items() if ".." not in file.parts)
    of_all = hashlib.sha256("\n".join(built).encode()).hexdigest()
    state = (
        f"{len(changed)} of {len(digests)} are not as built: {', '.join(changed[:5])}"
        if changed
        else "as built"
    )
    return f"{state}; digest of {len(built)} files sha256:{of_all}"


def _is_as_built(path: Path, digest: str) -> bool:
    """`digest`: SHA-256 in base 64 without its padding, as RECORD has it."""
    if not path.exists():
        return False
    found = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
    return found.rstrip(b"=").decode() == digest


def _libraries() -> Iterator[str]:
    for name in LIBRARIES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
