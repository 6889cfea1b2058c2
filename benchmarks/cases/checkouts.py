"""The projects whose test strings are read, each from a checkout of its repository."""

import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import detect_secrets, gitleaks, presidio
from benchmarks.cases.case import Case

CHECKOUTS = Path("build/checkouts")


@dataclass(frozen=True, slots=True)
class Project:
    """A project, and the commit whose test strings the figures are of."""

    name: str
    url: str
    commit: str
    cases: Callable[[Path], Iterable[Case]]

    def fetched(self, folder: Path = CHECKOUTS) -> Path:
        """Return a checkout in `folder`, which git fetches once. Raises `OSError` with what git says."""
        checkout = folder / self.name
        if not checkout.exists():
            unfinished = folder / f"{self.name}.part"
            _git("init", "--quiet", str(unfinished))
            _git("-C", str(unfinished), "fetch", "--quiet", "--depth=1", self.url, self.commit)
            _git("-C", str(unfinished), "checkout", "--quiet", "FETCH_HEAD")
            unfinished.rename(checkout)
        return checkout


def _git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())


KEYS = (
    Project(
        "gitleaks",
        "https://github.com/gitleaks/gitleaks",
        "b58d3f102cf3a2c84cb7f923d05c25c9b1aed84b",
        gitleaks.cases,
    ),
    Project(
        "detect-secrets",
        "https://github.com/Yelp/detect-secrets",
        "5e141933554a0b74e7341841f318be21e895339c",
        detect_secrets.cases,
    ),
)
PERSONAL = (
    Project(
        "presidio",
        "https://github.com/microsoft/presidio",
        "0aa9f8e44275cb52c00fbbebe19168e934e1f076",
        presidio.cases,
    ),
)


def cases_of(projects: Iterable[Project], given: Mapping[str, Path | None]) -> list[Case]:
    """Return the cases of the projects, from the checkouts `given` by name or from fetched ones.

    A project that cannot be fetched has none, and a line that says why is printed.
    """
    found: list[Case] = []
    for project in projects:
        try:
            found += project.cases(given.get(project.name) or project.fetched())
        except OSError as error:
            print(f"\nNot measured: the test strings of {project.name}. {error}")
            print(f"Clone {project.url} and give --{project.name} DIRECTORY.")
    return found
