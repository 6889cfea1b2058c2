"""The sets that judge detectors of injections, and a detector's cells in their table."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hooks.builtin.injection_model.model import Kind
from tools.injection import rows
from tools.injection.rows import Row
from tools.injection.split import TRAINED, digest, third

Flags = Callable[[str], bool]
_HIDDEN = "AgentDojo in READMEs"
_DOCUMENTS = ("Agent Threat Bench", "CodeIPI", "AgentDojo", _HIDDEN, "READMEs", "agents' prompts")
"""The sets whose texts a tool returns or a document has. The others are what users say."""
_AROUND = 6000


def installed() -> list[Path]:
    """The folders of packages of the environments in this checkout."""
    return sorted(Path().glob(".venv*/lib/python3*/site-packages"))


def judging_sets(packages: Sequence[Path]) -> dict[str, list[Row]]:
    sets = {name: judge() for name, judge in rows.JUDGES.items()}
    sets["READMEs"] = [row for row in rows.readmes(*packages) if third(row.text) == 2]
    sets[_HIDDEN] = [*_hidden(sets["AgentDojo"], sets["READMEs"])]
    sets["agents' prompts"] = [row for row in rows.agent_prompts(*packages) if third(row.text) == 2]
    trained = set(np.load(TRAINED).tolist())
    for name, judging in sets.items():
        if known := sum(digest(row.text) in trained for row in judging):
            sys.exit(f"{name}: {known} texts trained the model")
    return sets


def _hidden(injections: Sequence[Row], harmless: Sequence[Row]) -> Iterator[Row]:
    """Texts with an injection, each in the middle of 6,000 characters of a harmless one."""
    attacks = [row.text for row in injections if row.is_injection]
    for attack, around in zip(attacks, harmless, strict=False):
        text = around.text[:_AROUND]
        yield Row(f"{text[: len(text) // 2]}\n{attack}\n{text[len(text) // 2 :]}", True)


def kind_of(name: str) -> Kind:
    return "document" if name in _DOCUMENTS else "prompt"


def cell(flagged: Sequence[bool], judging: Sequence[Row]) -> str:
    """The share of a set's injections that is flagged / that of its harmless texts."""
    shares = []
    for is_injection in (True, False):
        some = [flag for flag, row in zip(flagged, judging, strict=True) if row.is_injection == is_injection]
        shares.append(f"{np.mean(some):.3f}" if some else "-")
    return " / ".join(shares)


def head(sets: dict[str, list[Row]]) -> str:
    """The table's first lines."""
    count = (
        f"{sum(row.is_injection for row in one)} + {sum(not row.is_injection for row in one)}"
        for one in sets.values()
    )
    names, line = " | ".join(sets), "---|" * len(sets)
    return f"| detector | {names} |\n|---|{line}\n| injections + harmless texts | {' | '.join(count)} |"
