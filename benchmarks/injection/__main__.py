"""Strangers' injections that the guard `injection` and other detectors find: `make bench NAME=injection`.

Needs `make data`. A column is a set of texts that trained neither the guard nor TF-IDF: the share of its
injections that is found, and the share of its harmless texts that is flagged. `--packages` names folders of
installed packages, whose READMEs and prompts are harmless.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.injection.detectors import OPEN, prismguard_rules, tfidf, word_list
from benchmarks.injection.sets import Flags, cell, head, installed, judging_sets, kind_of
from benchmarks.machine import processor
from hooks.builtin.injection_model.model import FALSE_RATES, InjectionModel, Kind
from tools.injection import rows
from tools.injection.rows import Row
from tools.injection.split import Shingles

RATE = 0.01
_SIZE, _TIMES = 4000, 200


def flagged(model: InjectionModel, kind: Kind, rate: float, text: str) -> bool:
    return bool(model.places(text, kind, rate))


def cells(flags: Flags, judging: Sequence[Row]) -> str:
    return cell([flags(row.text) for row in judging], judging)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, nargs="*", default=installed())
    sets = judging_sets(parser.parse_args().packages)
    model = InjectionModel.load()
    judging = Shingles(row.text for one in sets.values() for row in one)
    train = rows.slabs("train") + rows.neuralchemy("train", *rows.TRAINED)
    train = [row for row in train if not judging.has_near(row.text)]
    validation = rows.slabs("validation") + rows.neuralchemy("validation", *rows.TRAINED)
    harmless = [row.text for row in validation if not row.is_injection]
    print(processor())
    print(head(sets), flush=True)
    for rate in FALSE_RATES:
        shares = (cells(partial(flagged, model, kind_of(name), rate), one) for name, one in sets.items())
        print(f"| `injection`, false rate {rate} |", " | ".join(shares), "|", flush=True)
    others = {
        "TF-IDF and logistic regression": tfidf(train, harmless, RATE),
        "a word list": word_list(),
        "prismguard 0.1.10, its patterns": prismguard_rules(),
        **OPEN,
    }
    for name, flags in others.items():
        print(f"| {name} |", " | ".join(map(partial(cells, flags), sets.values())), "|", flush=True)
    text = "\n".join(row.text for row in sets["READMEs"])[:_SIZE]
    begun = time.process_time()
    for _ in range(_TIMES):
        model.places(text, "document", RATE)
    print(f"{_SIZE:,} characters of READMEs: {(time.process_time() - begun) / _TIMES * 1000:.2f} ms")


if __name__ == "__main__":
    main()
