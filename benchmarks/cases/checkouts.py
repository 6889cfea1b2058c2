"""The projects whose test strings are read, each from a checkout that the user has made."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import detect_secrets, gitleaks, presidio
from benchmarks.cases.case import Case


@dataclass(frozen=True)
class Checkouts:
    """The checkouts of the projects whose test strings are read; None: not given."""

    gitleaks: Path | None
    presidio: Path | None
    detect_secrets: Path | None

    def keys(self) -> list[Case]:
        found = list(gitleaks.cases(self.gitleaks)) if self.gitleaks else []
        return found + (list(detect_secrets.cases(self.detect_secrets)) if self.detect_secrets else [])

    def personal(self) -> list[Case]:
        return list(presidio.cases(self.presidio)) if self.presidio else []

    def missing(self) -> list[tuple[str, str]]:
        """Names and addresses of the projects whose checkouts are not given."""
        at = {
            "gitleaks": (self.gitleaks, "https://github.com/gitleaks/gitleaks"),
            "presidio": (self.presidio, "https://github.com/microsoft/presidio"),
            "detect-secrets": (self.detect_secrets, "https://github.com/Yelp/detect-secrets"),
        }
        return [(name, url) for name, (path, url) in at.items() if path is None]
