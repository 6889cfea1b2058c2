"""Trains the model of the guard `names`:

    .venv/bin/python -m tools.names.train build/data --spacy-python .venv-presidio/bin/python

The texts are drawn (`drawn`), and prose (`prose`) that spaCy labels. spaCy errs often there, so its label
counts only where the lists agree; a word on which they do not agree is left out.
"""

import argparse
import hashlib
import json
import random
import subprocess
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch

from hooks.builtin.name_model.features import NUM_ROWS, Show, Shown, rows, shown
from hooks.builtin.name_model.model import KINDS, OFFSET, lists_of, packed
from hooks.builtin.name_model.runs import Run, runs
from tools.names import lists as names
from tools.names import prose
from tools.names.drawn import Drawer, Text
from tools.names.templates import TEMPLATES

_UNKNOWN = -1
_PROGRAM = "benchmarks/cases/programs/presidio_names.py"
_HIDDEN = 0.3
"""Share of the names whose lists training does not see, because no list has all names."""
_HIDDEN_WORDS = 0.7
"""Share of their words that these names hide."""
_DROPPED = 0.25
"""Share of the features that training does not see."""


def labelled(texts: Iterable[str], python: Path, kept: Path) -> Iterator[Text]:
    """The texts with spaCy's labels. `kept`: a folder that keeps the labels for the next training."""
    given = list(texts)
    lines = "".join(json.dumps(text) + "\n" for text in given)
    labels = kept / f"{hashlib.sha256(lines.encode()).hexdigest()[:16]}.jsonl"
    if not labels.is_file():
        kept.mkdir(parents=True, exist_ok=True)
        command = [str(python), _PROGRAM, "label"]
        done = subprocess.run(command, input=lines, text=True, capture_output=True, check=True)
        labels.write_text(done.stdout)
    for text, line in zip(given, labels.read_text().splitlines(), strict=True):
        yield Text(text, [(start, end, kind) for start, end, kind in json.loads(line)["spacy"]])


def sure(text: Text, lists: Mapping[int, int]) -> Text:
    """The text's spans that the lists confirm. A span that they do not, and a first name that is in none, is
    of the kind `?`."""
    spans: list[tuple[int, int, str]] = []
    for start, end, kind in text.spans:
        bits = [lists_of(lists, word) for word in names.words_of(text.text[start:end])]
        listed = {
            "PERSON": any(b & (names.FIRST | names.LAST) and not b & names.COMMON for b in bits),
            "LOCATION": bool(bits) and all(b & (names.BIG_CITY | names.PLACE | names.STREET) for b in bits),
            "ORGANIZATION": any(b & (names.COMPANY | names.FORM) for b in bits),
            "NRP": True,
        }[kind]
        spans.append((start, end, ("" if kind == "NRP" else kind) if listed else "?"))
    for run in runs(text.text, 0, True)[0]:
        for word in run.words:
            bit = lists_of(lists, word.text)
            is_name = bit & names.FIRST and bit & names.LAST and not bit & names.COMMON
            if is_name and not any(start < word.end and word.start < end for start, end, _ in spans):
                spans.append((word.start, word.end, "?"))
    return text._replace(spans=spans)


def examples(text: Text, lists: Mapping[int, int], hides: random.Random) -> Iterator[tuple[list[int], int]]:
    """The rows and the label of each word of the text's runs."""
    for run in runs(text.text, 0, True)[0]:
        labels = [_label(text, (word.start + word.end) // 2) for word in run.words]
        for features, label in zip(rows(run, _shower(run, labels, lists, hides)), labels, strict=True):
            if label != _UNKNOWN:
                yield features, label


def _shower(run: Run, labels: list[int], lists: Mapping[int, int], hides: random.Random) -> Show:
    """Shows the run's tokens, at times some names among them without their lists."""
    hidden: set[str] = set()
    if hides.random() < _HIDDEN:
        named = [word.text for word, label in zip(run.words, labels, strict=True) if label > 0]
        hidden = {word for word in named if hides.random() < _HIDDEN_WORDS}

    def show(token: str) -> Shown:
        return shown(token, 0 if token in hidden else lists_of(lists, token))

    return show


def _label(text: Text, place: int) -> int:
    for start, end, kind in text.spans:
        if start <= place < end:
            return _UNKNOWN if kind == "?" else 0 if not kind else KINDS.index(kind) + 1
    return 0


def lower_words(texts: Iterable[str]) -> Counter[str]:
    """How often texts have a word in small letters. Words that they mostly write with a capital are none."""
    small: Counter[str] = Counter()
    capital: Counter[str] = Counter()
    for text in texts:
        for word in names.words_of(text):
            (small if word[0].islower() else capital)[word.lower()] += 1
    return Counter({word: n for word, n in small.items() if n * 4 > capital[word]})


def fitted(inputs: list[list[int]], labels: list[int], epochs: int, seed: int) -> torch.Tensor:
    """The weights, [NUM_ROWS, 1 + kinds]: a multinomial logistic regression."""
    torch.manual_seed(seed)
    table = torch.nn.EmbeddingBag(NUM_ROWS, 1 + len(KINDS), mode="sum")
    torch.nn.init.zeros_(table.weight)
    optimizer = torch.optim.Adagrad(table.parameters(), lr=0.08)
    features, wanted = torch.tensor(inputs), torch.tensor(labels)
    size = 1024
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(wanted)).split(size):
            shown_rows = features[batch]
            kept = (torch.rand(shown_rows.shape) > _DROPPED).float() / (1 - _DROPPED)
            scores = table(shown_rows, per_sample_weights=kept)
            loss = torch.nn.functional.cross_entropy(scores, wanted[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss) * len(batch)
        print(f"epoch {epoch}: loss {total / len(wanted):.4f}", flush=True)
    return table.weight.detach()


def quantized(weights: torch.Tensor) -> tuple["array[int]", float]:
    """The rows of the table, and the scale."""
    weights = weights - weights.mean(dim=1, keepdim=True)
    scale = float(weights.abs().max()) / 127
    steps = (weights / scale).round().to(torch.int64) + OFFSET
    table = sum(steps[:, i] << 16 * i for i in range(steps.shape[1]))
    assert isinstance(table, torch.Tensor)
    return array("Q", table.tolist()), scale


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--spacy-python", type=Path, required=True)
    parser.add_argument("--kept", type=Path, default=Path("build/names"))
    parser.add_argument("--drawn", type=int, default=50_000)
    parser.add_argument("--prose", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path("hooks/builtin/name_model/names.bin"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.time()
    countries = names.countries(options.data)
    english = prose.training(options.data, options.seed, options.prose)
    programs = prose.code(options.data, options.seed, options.prose)
    translated = [text for language in TEMPLATES for text in prose.translations(options.data, language)]
    lists = names.memberships(options.data, countries, lower_words([*english, *translated]))
    print(
        f"{len(lists)} words in the lists, {len(english)} paragraphs, {time.time() - began:.0f} s", flush=True
    )
    cities = [city for city, _ in names.cities(options.data)]
    drawer = Drawer(countries, names.big_companies(options.data), cities, options.seed)
    languages = [*TEMPLATES, "en", "en", "en"]
    drawn = [drawer.text(languages[i % len(languages)]) for i in range(options.drawn)]
    read = [sure(text, lists) for text in labelled(english, options.spacy_python, options.kept)]
    plain = [sure(Text(text, []), lists) for text in (*programs, *translated)]
    hides = random.Random(options.seed)
    inputs: list[list[int]] = []
    labels: list[int] = []
    for text in drawn + read + plain:
        for features, label in examples(text, lists, hides):
            inputs.append(features)
            labels.append(label)
    print(f"{len(labels)} words {sorted(Counter(labels).items())}, {time.time() - began:.0f} s", flush=True)
    table, scale = quantized(fitted(inputs, labels, options.epochs, options.seed))
    options.output.write_bytes(packed(table, scale, lists))
    print(f"{options.output}: {options.output.stat().st_size} bytes, {time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
