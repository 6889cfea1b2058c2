"""Builds a release from a tag, twice, and stops unless both have the same bytes.

    python -m tools.release [--ref v0.2.0] [--out build/release] [--key release-key.pem]

The folder then has the sdist, a wheel for every machine, a wheel for x86-64 with the kernels in C compiled, a
bill of materials of each extra (CycloneDX 1.6), the list of licences, the provenance (SLSA 1.0, as an in-toto
statement), and SHA256SUMS of all these. `--key` is an Ed25519 key in PEM: it signs SHA256SUMS, as `openssl
pkeyutl -sign -rawin` does. The bills need the package index.
"""

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

from tools.release.bill import BillError, Package, bills, licences
from tools.release.kernels import KernelError, wheel_with_kernels
from tools.release.provenance import statement

ROOT = Path(__file__).parents[2]
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """A release cannot be made. The message is for the person who makes it."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--ref", default="HEAD", help="the tag to build (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/release", help="an empty or a new folder")
    parser.add_argument("--key", type=Path, help="an Ed25519 key in PEM that signs the digests")
    parser.add_argument("--extras", help="extras to list, with commas between (all)")
    options = parser.parse_args()
    try:
        release(options.ref, options.out, options.key, options.extras)
    except (ReleaseError, BillError, KernelError) as error:
        parser.exit(1, f"{error}\n")


def release(ref: str, out: Path, key: Path | None, extras: str | None = None) -> None:
    """Raises `ReleaseError`, `BillError` and `KernelError`."""
    commit = _git("rev-parse", f"{ref}^{{commit}}")
    seconds = int(_git("log", "-1", "--format=%ct", commit))
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        builds = [built(commit, seconds, Path(scratch) / name) for name in ("first", "second")]
        if different := differing(*builds):
            raise ReleaseError(f"two builds of {commit} differ: {', '.join(different)}")
        for path in builds[0].iterdir():
            (out / path.name).write_bytes(path.read_bytes())
    (wheel,) = out.glob("*-none-any.whl")
    chosen = extras.split(",") if extras is not None else _extras()
    resolved: dict[str, Package] = {}
    for name, bill, needed in bills(wheel, chosen, seconds):
        (out / name).write_text(bill)
        resolved.update(needed)
        print(name, flush=True)
    (out / "LICENCES.csv").write_text(licences(resolved))
    packages = [path for path in sorted(out.iterdir()) if path.suffix in (".whl", ".gz")]
    (out / "provenance.json").write_text(statement(packages, commit, ref, seconds))
    sums = "".join(f"{digest_of(path)}  {path.name}\n" for path in sorted(out.iterdir()))
    (out / SUMS).write_text(sums)
    if key is not None:
        _sign(out / SUMS, key)
    print(sums, end="")


def built(commit: str, seconds: int, folder: Path) -> Path:
    """Build the sdist and the wheels of a commit in a folder of its own. Returns the folder of all."""
    source, dist = folder / "weir", folder / "dist"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit], capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    # Files have the modes of the archive, whatever the user's mask: both end up in the packages.
    subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(source)], check=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source)]
    made = subprocess.run(command, env=environment, capture_output=True, text=True)
    if made.returncode:
        raise ReleaseError(f"the build failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
    for sdist in dist.glob("*.tar.gz"):
        write_sdist(sdist, seconds)
    (pure,) = dist.glob("*.whl")
    wheel_with_kernels(pure, source, environment)
    return dist


def write_sdist(path: Path, seconds: int) -> None:
    """Write the sdist again without times and users: setuptools puts those of the build into it."""
    with tarfile.open(path) as archive:
        contents = [
            (entry, archive.extractfile(entry) if entry.isfile() else None) for entry in archive.getmembers()
        ]
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as again:
            for entry, content in sorted(contents, key=lambda one: one[0].name):
                entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = seconds, 0, 0, "", ""
                entry.pax_headers = {}
                again.addfile(entry, content)
    path.write_bytes(gzip.compress(tar.getvalue(), mtime=seconds))


def differing(first: Path, second: Path) -> list[str]:
    """The names of the files that the two folders do not have alike."""
    names = sorted({path.name for folder in (first, second) for path in folder.iterdir()})

    def same(name: str) -> bool:
        one, other = first / name, second / name
        return one.exists() and other.exists() and one.read_bytes() == other.read_bytes()

    return [name for name in names if not same(name)]


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _extras() -> list[str]:
    """The extras for people who use Weir, and none of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return ["", *(name for name in project["optional-dependencies"] if name not in ("dev", "docs", "vllm"))]


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    if found.returncode:
        raise ReleaseError(found.stderr.strip())
    return found.stdout.strip()


def _sign(path: Path, key: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    loaded = load_pem_private_key(key.read_bytes(), None)
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ReleaseError(f"{key} is no Ed25519 key")
    path.with_suffix(".sig").write_bytes(loaded.sign(path.read_bytes()))


if __name__ == "__main__":
    main()
