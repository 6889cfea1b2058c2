"""Trains the model of the guard `injection` and writes its weights.

    make data && make train-injection

Needs scikit-learn and pyarrow, which `.venv-train` has, and minutes on one core. Each kind of text has a
logistic regression over hashed features. Harmless windows that it takes for orders train it once more, twice.
Thresholds come from harmless texts that did not train it, by their length: a long text has more windows.
"""

import argparse
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

from hooks.builtin.injection_model import model as injection_model
from hooks.builtin.injection_model.features import BITS, features
from hooks.builtin.injection_model.model import FALSE_RATES, KINDS, Kind, Linear
from tools.injection import rows
from tools.injection.examples import Examples, Harmless, calm
from tools.injection.split import TRAINED, Shingles, digest

WEIGHTS = Path(injection_model.__file__).with_name(injection_model.FILE)
_ROUNDS = 2
_WORST = 3
"""Windows of a document and a size that train once more: those with the highest scores."""
_KNOTS = (12, 24, 50, 100, 200, 400, 1000)
"""Words between which thresholds are chosen: one for each length from one to the next."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, nargs="*", default=[], help="folders of installed packages")
    folders = parser.parse_args().packages
    chance = random.Random(20)
    judging = Shingles(row.text for judge in rows.JUDGES.values() for row in judge())
    harmless = Harmless.load(*folders)
    seen: set[int] = set()
    stored: dict[str, NDArray[Any]] = {}
    for kind in KINDS:
        examples = Examples.draw(kind, harmless, judging, chance)
        seen.update(map(digest, examples.given))
        linear = _trained(examples, harmless.training(kind))
        stored |= _stored(kind, linear, calm(kind, harmless, chance))
    np.savez_compressed(WEIGHTS, **stored)  # type: ignore[arg-type]
    np.save(TRAINED, np.array(sorted(seen), dtype=np.uint64))
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size / 1e6:.1f} MB; {len(seen)} texts trained it")


def _trained(examples: Examples, documents: Sequence[str]) -> Linear:
    positive, negative, _ = examples
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


if __name__ == "__main__":
    main()
