"""Probes of a small real model, on the sets that judge `injection`: `make bench NAME=injection_probe`.

    python -m benchmarks.injection_probe [--rows 3000] [--calm 400] [--judged 200]

Needs `make data`. Probes of each kind learn on a sample of the texts that trained the guard's linear model,
half of them with an order, as prompts of the model: what a user says, or what a tool returned. Harmless texts
that trained neither choose a probe's threshold. `and` is the linear model at its false rate of 0.005 and
the probe, which finds what either finds: the threshold of the probe is such that both together flag 1 % of
these harmless texts. The folder keeps probes and scores: a second run only writes the table. It also gets the
texts as `weir probe train` and `weir probe calibrate` read them.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.injection.sets import cell, head, installed, judging_sets, kind_of
from benchmarks.machine import processor
from engine.execution.model_runner import ModelRunner
from engine.execution.probes.activations import activations
from engine.execution.probes.model_hash import model_hash
from engine.execution.probes.probe_file import Probe, load_probe
from engine.protocol.options import EngineConfig
from engine.protocol.probe_info import ProbeInfo, ProbeKind
from engine.text.tokenizer import LocalTokenizer
from hooks.builtin.injection_model.model import KINDS, InjectionModel, Kind
from hooks.testing.streams import stream_of
from proxy.cli.probes.measuring import running_scores
from proxy.cli.probes.training import Replies, fit
from tools.injection.examples import Examples, Harmless, calm
from tools.injection.rows import JUDGES, Row
from tools.injection.split import Shingles

RATE, STRICT_RATE = 0.01, 0.005
LAYERS = tuple(f"model.layers.{i}" for i in (10, 20, 29))
SPAN = 8
MOST_TOKENS, MOST_TRAINING_TOKENS = 1536, 256
"""Tokens of a prompt that a probe reads here, and those of the longest prompt that trains one. What comes
after the first is left out; a text of more than the second trains nothing."""
PROBES: tuple[ProbeKind, ...] = get_args(ProbeKind)
Scores = Mapping[str, NDArray[np.float64]]
"""The scores of some texts by each kind of probe."""


class Reader:
    """The model, and what it makes of prompts."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._tokenizer = LocalTokenizer.load(model)
        self._runner = ModelRunner.load(EngineConfig(model=model, device="cpu", enforce_eager=True))

    def inputs(self, kind: Kind, texts: Sequence[str]) -> Iterator[torch.Tensor]:
        """The activations of all tokens of the prompts that have these texts, the template's included."""
        return activations(self._runner, [self._prompt(kind, text) for text in texts], LAYERS)

    def short(self, kind: Kind, texts: Sequence[str], most: int) -> list[str]:
        """The texts whose prompts have at most so many tokens."""
        return [text for text in texts if len(self._prompt(kind, text)) <= most]

    def probes(self, kind: Kind, texts: Sequence[str], labels: Sequence[int], folder: Path) -> list[Probe]:
        """Probes of each kind, from the folder if they are there."""
        files = [folder / f"{kind}-{probe}.safetensors" for probe in PROBES]
        if not all(file.exists() for file in files):
            replies = Replies([*self.inputs(kind, texts)], labels)
            for probe, file in zip(PROBES, files, strict=True):
                info = ProbeInfo(name=f"injection-{kind}", kind=probe, labels=("injection",))
                tensors = fit(replies, probe, span=SPAN, seed=0)
                Probe(info, LAYERS, Path(self._model).name, model_hash(self._model), tensors).save(file)
            print(f"{kind}: {len(texts)} texts of {sum(map(len, replies.inputs)):,} tokens train", flush=True)
        return [load_probe(file) for file in files]

    def scores(self, kind: Kind, texts: Sequence[str], probes: Sequence[Probe], file: Path) -> Scores:
        """The greatest running score of each text, from the file if it is there."""
        if not file.exists():
            found: list[list[float]] = []
            for one in self.inputs(kind, texts):
                each = [next(running_scores(probe, [one], [0], "rolling_mean", SPAN)) for probe in probes]
                found.append([scored.greatest for scored in each])
            np.savez(file, **dict(zip(PROBES, np.array(found).T, strict=True)))
        with np.load(file) as stored:
            return dict(stored)

    def _prompt(self, kind: Kind, text: str) -> Sequence[int]:
        request = stream_of("", prompt=_messages(kind, text)).request
        return self._tokenizer.encode_chat(request)[:MOST_TOKENS]


def _messages(kind: Kind, text: str) -> tuple[dict[str, str], ...]:
    if kind == "prompt":
        return ({"role": "user", "content": text},)
    return {"role": "user", "content": "Read it."}, {"role": "tool", "content": text}


def _write(file: Path, kind: Kind, texts: Sequence[str], labels: Sequence[int]) -> None:
    with file.open("w", encoding="utf-8") as out:
        for text, label in zip(texts, labels, strict=True):
            line = {"messages": _messages(kind, text), "prompt_unsafe": bool(label)}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="build/models/smollm2.gguf")
    parser.add_argument("--rows", type=int, default=3000, help="texts that train, for each kind of text")
    parser.add_argument("--calm", type=int, default=400, help="harmless texts that choose a threshold")
    parser.add_argument("--judged", type=int, default=200, help="most injections and harmless texts of a set")
    parser.add_argument("--folder", type=Path, default=Path("build/injection-probe"))
    parser.add_argument("--packages", type=Path, nargs="*", default=installed())
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sets = {name: _fewer(one, options.judged) for name, one in judging_sets(options.packages).items()}
    harmless = Harmless.load(*options.packages)
    reader, linear = Reader(options.model), InjectionModel.load()
    print(processor())
    print(head(sets), flush=True)
    table: dict[str, dict[str, str]] = {}
    for kind in KINDS:
        chance = random.Random(20)
        drawn = _training(kind, harmless, options.rows, chance)
        halves = [reader.short(kind, half, MOST_TRAINING_TOKENS) for half in drawn]
        texts, labels = [*halves[0], *halves[1]], [1] * len(halves[0]) + [0] * len(halves[1])
        probes = reader.probes(kind, texts, labels, options.folder)
        quiet = _some(calm(kind, harmless, chance), options.calm, chance)
        _write(options.folder / f"{kind}-train.jsonl", kind, texts, labels)
        calmest = reader.short(kind, quiet, MOST_TOKENS - 1)
        _write(options.folder / f"{kind}-calm.jsonl", kind, calmest, [0] * len(calmest))
        quiet_scores = reader.scores(kind, quiet, probes, options.folder / f"{kind}-calm.npz")
        strict = _flags(linear, kind, STRICT_RATE, quiet)
        for name in (name for name in sets if kind_of(name) == kind):
            judged = [row.text for row in sets[name]]
            begun, file = time.perf_counter(), options.folder / f"{kind}-{'-'.join(name.split())}.npz"
            scores = reader.scores(kind, judged, probes, file)
            print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
            of_strict = _flags(linear, kind, STRICT_RATE, judged)
            found = {f"`injection`, false rate {RATE}": _flags(linear, kind, RATE, judged)}
            for probe in PROBES:
                alone = scores[probe] > _threshold(quiet_scores[probe], np.zeros_like(strict))
                with_it = scores[probe] > _threshold(quiet_scores[probe], strict)
                found[f"probe, {probe}"] = alone
                found[f"`injection` and probe, {probe}"] = with_it | of_strict
            for detector, flags in found.items():
                table.setdefault(detector, {})[name] = cell(flags.tolist(), sets[name])
    for detector, cells in table.items():
        print(f"| {detector} |", " | ".join(cells[name] for name in sets), "|")
    _cost(reader, linear, [row for row in sets["s-labs"] if len(row.text) >= 40][:200], probes[0])


def _training(kind: Kind, harmless: Harmless, count: int, chance: random.Random) -> list[list[str]]:
    """Texts with an order, and as many without."""
    judging = Shingles(row.text for judge in JUDGES.values() for row in judge())
    positive, negative, _ = Examples.draw(kind, harmless, judging, chance)
    return [_some(texts, count // 2, chance) for texts in (positive, negative)]


def _fewer(judging: Sequence[Row], count: int) -> list[Row]:
    """At most so many rows of each label."""
    chance = random.Random(1)
    parts = ([row for row in judging if row.is_injection == label] for label in (True, False))
    return [row for part in parts for row in chance.sample(part, min(count, len(part)))]


def _some(texts: Sequence[str], count: int, chance: random.Random) -> list[str]:
    return chance.sample(texts, min(count, len(texts)))


def _flags(linear: InjectionModel, kind: Kind, rate: float, texts: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([bool(linear.places(text, kind, rate)) for text in texts])


def _threshold(scores: NDArray[np.float64], flagged: NDArray[np.bool_]) -> float:
    """The least score above which at most `RATE` of the harmless texts are found or already flagged."""
    allowed = int(RATE * len(scores)) - int(flagged.sum())
    rest = np.sort(scores[~flagged])[::-1]
    return float(rest[allowed]) if allowed >= 0 else np.inf


def _cost(reader: Reader, linear: InjectionModel, judged: Sequence[Row], probe: Probe) -> None:
    """Milliseconds of a prompt, one by one."""
    texts = [row.text for row in judged]
    begun = time.perf_counter()
    inputs = [one for text in texts for one in reader.inputs("prompt", [text])]
    read = time.perf_counter()
    for _ in running_scores(probe, inputs, [0] * len(inputs), "rolling_mean", SPAN):
        pass
    scored = time.perf_counter()
    _flags(linear, "prompt", RATE, texts)
    ended = time.perf_counter()
    tokens = sum(map(len, inputs)) / len(texts)
    spans = (read - begun, scored - read, ended - scored)
    reads, scores, judges = (span / len(texts) * 1000 for span in spans)
    print(f"a prompt of {tokens:.0f} tokens: the model reads it in {reads:.1f} ms, a probe's scores take")
    print(f"{scores:.2f} ms, the linear model {judges:.2f} ms")


if __name__ == "__main__":
    main()
