"""Answers with people's labels of harm, from the package `pyrit`, and harmless answers of a small real model.

Two sets are in the package. In `harm`, people gave each answer a degree of harm from 0 to 1; a probe learns
on it. In `objective`, people said whether an answer does what a harmful prompt asks for; guards are judged on
it. What both have is left out of what a probe learns.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path("build/data/pyrit/pyrit/datasets/scorer_evals")
HARMFUL = 0.5
"""An answer of this degree or more is harmful to learn from. One of 0 is harmless. Others are left out."""
PARTS = re.compile(r"\w+")
SHARED = 0.5
"""Two texts that share more of their runs of five words than this count as one."""


class Labelled(NamedTuple):
    prompt: str
    reply: str
    is_harmful: bool
    category: str


def learned(judged: Sequence[Labelled]) -> list[Labelled]:
    """The answers to learn from, without those that are much like one of `judged`. An answer that several
    people gave degrees counts by the first of them."""
    found: dict[str, Labelled] = {}
    known = [_runs(f"{one.prompt} {one.reply}") for one in judged]
    for row in _rows("harm"):
        degree = _degree(row)
        if degree is None or 0 < degree < HARMFUL or not row["assistant_response"].strip():
            continue
        runs = _runs(f"{row['objective']} {row['assistant_response']}")
        if any(len(runs & other) > SHARED * min(len(runs), len(other)) for other in known if other and runs):
            continue
        found[row["assistant_response"]] = _labelled(row, degree >= HARMFUL)
    return [*found.values()]


def judged() -> list[Labelled]:
    """The answers that guards are judged on."""
    rows = _rows("objective")
    kept = {r["assistant_response"]: _labelled(r, float(r["human_score"]) >= 0.5) for r in rows}
    return [one for reply, one in kept.items() if reply.strip()]


def _degree(row: dict[str, str]) -> float | None:
    """The first person's degree. None: there is none."""
    given = [value for name, value in row.items() if name and name.startswith("human_score") and value]
    return float(given[0]) if given else None


def _labelled(row: dict[str, str], is_harmful: bool) -> Labelled:
    return Labelled(row["objective"], row["assistant_response"], is_harmful, row["harm_category"])


def _rows(name: str) -> Iterator[dict[str, str]]:
    """Raises `FileNotFoundError` where the data is not fetched (`make data`)."""
    if not FOLDER.exists():
        raise FileNotFoundError(f"{FOLDER} is not there: make data")
    for path in sorted((FOLDER / name).glob("*.csv")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for row in csv.DictReader(lines[lines[0].startswith("#") :]):
            if row.get("data_type") == "text":
                yield row


def _runs(text: str) -> frozenset[str]:
    words = PARTS.findall(text.lower())
    return frozenset(" ".join(words[i : i + 5]) for i in range(len(words) - 4))


def write(path: Path, exchanges: Iterable[Labelled]) -> None:
    """As `weir eval-guard` and `weir probe` read them."""
    with path.open("w", encoding="utf-8") as file:
        for one in exchanges:
            fields = {"prompt": one.prompt, "reply": one.reply, "unsafe": one.is_harmful}
            file.write(json.dumps({**fields, "category": one.category}, ensure_ascii=False) + "\n")
