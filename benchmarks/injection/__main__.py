"""Strangers' injections that the guard `injection` and other detectors find: `make bench NAME=injection`.

Needs `make data`. A column is a set of texts that trained neither the guard nor TF-IDF: the share of its
injections that is found, and the share of its harmless texts that is flagged. `--packages` names folders of
installed packages, whose READMEs and prompts are harmless.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.injection.detectors import OPEN, Flags, prismguard_rules, tfidf, word_list
from benchmarks.machine import processor
from hooks.builtin.injection_model.model import FALSE_RATES, InjectionModel, Kind
from tools.injection import rows
from tools.injection.rows import Row
from tools.injection.split import Shingles, digest, third
from tools.injection.train import TRAINED

HIDDEN = "AgentDojo in READMEs"
DOCUMENTS = ("Agent Threat Bench", "CodeIPI", "AgentDojo", HIDDEN, "READMEs", "agents' prompts")
"""The sets whose texts a tool returns or a document has. The others are what users say."""
RATE = 0.01
_SIZE, _TIMES, _AROUND = 4000, 200, 6000


def judging_sets(packages: Sequence[Path]) -> dict[str, list[Row]]:
    sets = {name: judge() for name, judge in rows.JUDGES.items()}
    sets["READMEs"] = [row for row in rows.readmes(*packages) if third(row.text) == 2]
    sets[HIDDEN] = [*_hidden(sets["AgentDojo"], sets["READMEs"])]
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
    return "document" if name in DOCUMENTS else "prompt"


def flagged(model: InjectionModel, kind: Kind, rate: float, text: str) -> bool:
    return bool(model.places(text, kind, rate))


def cell(flags: Flags, judging: Sequence[Row]) -> str:
    found = [
        [bool(flags(row.text)) for row in judging if row.is_injection == is_injection]
        for is_injection in (True, False)
    ]
    return " / ".join(f"{np.mean(flagged):.3f}" if flagged else "-" for flagged in found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--packages", type=Path, nargs="*", default=sorted(Path().glob(".venv*/lib/python3*/site-packages"))
    )
    sets = judging_sets(parser.parse_args().packages)
    model = InjectionModel.load()
    judging = Shingles(row.text for one in sets.values() for row in one)
    train = rows.slabs("train") + rows.neuralchemy("train", *rows.TRAINED)
    train = [row for row in train if not judging.has_near(row.text)]
    validation = rows.slabs("validation") + rows.neuralchemy("validation", *rows.TRAINED)
    harmless = [row.text for row in validation if not row.is_injection]
    print(processor())
    print("| detector |", " | ".join(sets), "|")
    print("|---|", "---|" * len(sets), sep="")
    count = (
        f"{sum(row.is_injection for row in one)} + {sum(not row.is_injection for row in one)}"
        for one in sets.values()
    )
    print("| injections + harmless texts |", " | ".join(count), "|", flush=True)
    for rate in FALSE_RATES:
        cells = [cell(partial(flagged, model, kind_of(name), rate), one) for name, one in sets.items()]
        print(f"| `injection`, false rate {rate} |", " | ".join(cells), "|", flush=True)
    others = {
        "TF-IDF and logistic regression": tfidf(train, harmless, RATE),
        "a word list": word_list(),
        "prismguard 0.1.10, its patterns": prismguard_rules(),
        **OPEN,
    }
    for name, flags in others.items():
        print(f"| {name} |", " | ".join(map(partial(cell, flags), sets.values())), "|", flush=True)
    text = "\n".join(row.text for row in sets["READMEs"])[:_SIZE]
    begun = time.process_time()
    for _ in range(_TIMES):
        model.places(text, "document", RATE)
    print(f"{_SIZE:,} characters of READMEs: {(time.process_time() - begun) / _TIMES * 1000:.2f} ms")


if __name__ == "__main__":
    main()
