"""The finders that are compared: Weir's guards, and other projects' programs in their own environments."""

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hooks.detect.detector import Detector

Span = tuple[int, int, str]
"""Start, end and the name of what was found."""
_PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class Found:
    """The spans found in each text, and the seconds that this took."""

    spans: list[list[Span]]
    seconds: float


class Finder(Protocol):
    """A guard or a program that finds values in texts."""

    name: str

    def find(self, texts: Sequence[str]) -> Found:
        """Return the spans in each text, from left to right."""
        ...


def cut_by(detector: Detector, text: str) -> list[Span]:
    """What the guard cuts: matches that overlap are one, named as the first of them."""
    found: list[Span] = []
    matches, _ = detector.scan(text)
    for start, end, entity, _ in sorted(matches, key=lambda match: (match.start, -match.end, match.rule)):
        if not found or start >= found[-1][1]:
            found.append((start, end, entity))
        else:
            found[-1] = (found[-1][0], max(end, found[-1][1]), found[-1][2])
    return found


class Guards:
    """Guards of Weir, each reading the whole text."""

    def __init__(self, name: str, *detectors: Detector) -> None:
        self.name = name
        self._detectors = detectors

    def find(self, texts: Sequence[str]) -> Found:
        began = time.process_time()
        spans = [[span for one in self._detectors for span in cut_by(one, text)] for text in texts]
        return Found(spans, time.process_time() - began)


class Program:
    """A program in `programs`: texts in, spans out."""

    def __init__(self, name: str, python: Path, program: str, *arguments: str) -> None:
        self.name = name
        self._command = [str(python), str(_PROGRAMS / f"{program}.py"), *arguments]

    def find(self, texts: Sequence[str]) -> Found:
        done = subprocess.run(
            self._command, input=json.dumps(list(texts)), capture_output=True, text=True, check=True
        )
        read = json.loads(done.stdout)
        return Found([[(a, b, name) for a, b, name in spans] for spans in read["spans"]], read["seconds"])


class Gitleaks:
    """The program gitleaks with its own configuration. Each text is a file of its own."""

    name = "gitleaks"

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def find(self, texts: Sequence[str]) -> Found:
        with tempfile.TemporaryDirectory() as directory:
            for i, text in enumerate(texts):
                Path(directory, f"{i}.txt").write_text(text, newline="")
            report = Path(directory, "report.json")
            began = time.perf_counter()
            subprocess.run(
                [self._binary, "dir", directory, "--report-path", report, "--exit-code", "0", "--no-banner"],
                check=True,
                capture_output=True,
            )
            seconds = time.perf_counter() - began
            spans: list[list[Span]] = [[] for _ in texts]
            for finding in json.loads(report.read_text()):
                number = int(Path(finding["File"]).stem)
                spans[number] += _places(texts[number], finding["Secret"], finding["RuleID"])
        return Found(spans, seconds)


def _places(text: str, secret: str, name: str) -> list[Span]:
    """The first place of the secret: a report gives lines and columns of the whole match only."""
    start = text.find(secret)
    return [(start, start + len(secret), name)] if secret and start >= 0 else []


def gitleaks_in(environment: Path) -> Gitleaks | None:
    """Return gitleaks as a Python package brings it into an environment; None: it is not there."""
    found = sorted(environment.glob("lib/python3*/site-packages/*/bin/gitleaks"))
    return Gitleaks(found[0]) if found else None


def peers(root: Path) -> dict[str, list[Finder]]:
    """Return the peers whose environments are below `root`, by the kind of value that they find."""
    secrets: list[Finder] = []
    personal: list[Finder] = []
    if gitleaks := gitleaks_in(root / ".venv-gitleaks"):
        secrets.append(gitleaks)
    python = root / ".venv-detect-secrets/bin/python"
    if python.exists():
        secrets.append(Program("detect-secrets", python, "detect_secrets_finder", "text.conf"))
    python = root / ".venv-presidio/bin/python"
    if python.exists():
        personal.append(Program("Presidio", python, "presidio_finder"))
        personal.append(Program("Presidio, all", python, "presidio_finder", "all"))
    return {"secrets": secrets, "pii": personal}
