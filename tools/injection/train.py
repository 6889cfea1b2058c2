"""Trains the model of the guard `injection` and writes its weights.

    make data && make train-injection

Needs scikit-learn and pyarrow, which `.venv-train` has, and minutes on one core. Each kind of text has a
logistic regression over hashed features. Harmless windows that it takes for orders train it once more, twice.
Thresholds come from harmless texts that did not train it, by their length: a long text has more windows.
"""

import argparse
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

from hooks.builtin.injection_model import model as injection_model
from hooks.builtin.injection_model.features import BITS, features
from hooks.builtin.injection_model.model import FALSE_RATES, KINDS, WINDOWS, Kind, Linear
from tools.injection import rows
from tools.injection.orders import harmless_lines, orders
from tools.injection.rows import Row
from tools.injection.split import Shingles, digest, third

WEIGHTS = Path(injection_model.__file__).with_name(injection_model.FILE)
TRAINED = Path(__file__).with_name("trained.npy")
"""Digests of the texts that trained the weights, for a check of what judges them."""
_ORDERS = 5000
_ROUNDS = 2
_WORST = 3
"""Windows of a document and a size that train once more: those with the highest scores."""
_KNOTS = (12, 24, 50, 100, 200, 400, 1000)
"""Words between which thresholds are chosen: one for each length from one to the next."""
_CUTS = (10, 18, 35, 70, 140, 280, 600)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, nargs="*", default=[], help="folders of installed packages")
    folders = parser.parse_args().packages
    chance = random.Random(20)
    judging = Shingles(row.text for judge in rows.JUDGES.values() for row in judge())
    requests = rows.requests()
    documents = (
        rows.documents() + rows.modules(*folders) + rows.readmes(*folders) + rows.agent_prompts(*folders)
    )
    seen: set[int] = set()
    stored: dict[str, NDArray[Any]] = {}
    for kind in KINDS:
        train = [row for row in _rows("train", kind) if not judging.has_near(row.text)]
        # Users ask for texts; what agents read are documents of all kinds.
        around = requests if kind == "prompt" else documents + requests
        linear = _trained(train, _of(0, around), chance, seen)
        calm = [row.text for row in _rows("validation", kind) if not row.is_injection and kind == "prompt"]
        calm += _cuts(_of(1, requests if kind == "prompt" else documents), chance)
        stored |= _stored(kind, linear, calm)
    np.savez_compressed(WEIGHTS, **stored)  # type: ignore[arg-type]
    np.save(TRAINED, np.array(sorted(seen), dtype=np.uint64))
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size / 1e6:.1f} MB; {len(seen)} texts trained it")


def _of(part: int, harmless: Sequence[Row]) -> list[str]:
    return [row.text for row in harmless if third(row.text) == part]


def _cuts(texts: Iterable[str], chance: random.Random) -> Iterator[str]:
    return (_cut(text, size, chance) for text in texts for size in (*_CUTS, 10**6))


def _rows(part: rows.Part, kind: Kind) -> list[Row]:
    """Questions about a system prompt, which s-labs has many of, are no orders in a document."""
    slabs = [row for row in rows.slabs(part) if kind == "prompt" or not row.is_injection]
    return slabs + rows.neuralchemy(part, *rows.TRAINED)


def _trained(train: Sequence[Row], documents: Sequence[str], chance: random.Random, seen: set[int]) -> Linear:
    given = [row.text for row in train if row.is_injection]
    made, lines = list(orders(_ORDERS, chance)), list(harmless_lines(_ORDERS, chance))
    within = [text for text in given if len(text) < 400 and " " in text] + made
    positive = [_cut(text, WINDOWS[-1], chance) for text in given] + made
    positive += [_put_into(chance.choice(documents), text, chance) for text in within]
    negative = [row.text for row in train if not row.is_injection] + lines
    negative += [_put_into(chance.choice(documents), text, chance) for text in lines[: _ORDERS // 2]]
    negative += [_cut(text, size, chance) for text in documents for size in (*WINDOWS, WINDOWS[0])]
    seen.update(map(digest, [row.text for row in train] + list(documents)))
    table = _table(positive + negative)
    labels = np.repeat([1, 0], [len(positive), len(negative)])
    linear = _fitted(table, labels)
    for _ in range(_ROUNDS):
        hard = [window for text in documents for window in _worst(linear, text)]
        table = scipy.sparse.vstack([table, _table(hard)]).tocsr()
        labels = np.append(labels, np.zeros(len(hard), dtype=labels.dtype))
        linear = _fitted(table, labels)
    return linear


def _fitted(table: scipy.sparse.csr_matrix, labels: NDArray[np.int_]) -> Linear:
    regression = SGDClassifier(
        loss="log_loss",
        alpha=3e-7,
        average=True,
        max_iter=12,
        tol=None,
        class_weight="balanced",
        learning_rate="constant",
        eta0=2.0,
        random_state=1,
    ).fit(table, labels)
    print(f"{table.shape[0]} texts, {labels.sum()} with an order", flush=True)
    return Linear(regression.coef_[0].astype(np.float32), float(regression.intercept_[0]))


def _table(texts: Iterable[str]) -> scipy.sparse.csr_matrix:
    """A row for each text, with the share of each feature: `[texts, 2 ** BITS]`."""
    ends, columns, values = [0], [], []
    for text in texts:
        numbers = features(text).numbers
        found, counts = np.unique(numbers, return_counts=True)
        columns.append(found.astype(np.int32))
        values.append((counts / np.sqrt(max(1, len(numbers)))).astype(np.float32))
        ends.append(ends[-1] + len(found))
    cells = (np.concatenate(values), np.concatenate(columns), ends)
    return scipy.sparse.csr_matrix(cells, shape=(len(ends) - 1, 1 << BITS))


def _worst(linear: Linear, text: str) -> list[str]:
    """The windows of a harmless text that look most like an order."""
    worst = []
    for scores, places in linear.windows(features(text)):
        likely = [i for i in np.argsort(-scores)[:_WORST] if scores[i] > -2]
        worst += [text[start:end] for start, end in places[likely].tolist()]
    return worst


def _stored(kind: Kind, linear: Linear, harmless: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays that are kept for a kind: its weights as small whole numbers, its thresholds by length."""
    scale = np.float32(np.quantile(np.abs(linear.weights[linear.weights != 0]), 0.9999) / 127)
    weights = np.clip(np.round(linear.weights / scale), -127, 127).astype(np.int8)
    small = Linear(weights * scale, linear.bias)
    found = [features(text) for text in harmless]
    scores = np.array([small.score(one) for one in found])
    lengths = np.array([one.num_words for one in found])
    knots: list[float] = []
    thresholds: list[NDArray[np.float64]] = []
    for low, high in zip((1, *_KNOTS), (*_KNOTS, 10**9), strict=True):
        within = (lengths >= low) & (lengths < high)
        knots.append(np.log(lengths[within]).mean())
        thresholds.append(np.quantile(scores[within], [1 - rate for rate in FALSE_RATES]))
        print(f"{kind}, from {low} words: {within.sum()} texts, {np.round(thresholds[-1], 2)}", flush=True)
    rising = np.maximum.accumulate(thresholds)
    return {
        f"{kind}_weights": weights,
        f"{kind}_scale": np.array(scale),
        f"{kind}_bias": np.array(linear.bias, dtype=np.float32),
        f"{kind}_lengths": np.array(knots, dtype=np.float32),
        f"{kind}_thresholds": rising.astype(np.float32).T,
    }


def _cut(text: str, size: int, chance: random.Random) -> str:
    """So many words of the text, from any place."""
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    if len(starts) <= size:
        return text
    first = chance.randrange(len(starts) - size)
    return text[starts[first] : starts[first + size]]


def _put_into(document: str, text: str, chance: random.Random) -> str:
    words = _cut(document, chance.randrange(4, WINDOWS[-1]), chance).split(" ")
    place, between = chance.randrange(len(words) + 1), chance.choice((" ", "\n", "\n\n"))
    return between.join([" ".join(words[:place]), text, " ".join(words[place:])])


if __name__ == "__main__":
    main()
