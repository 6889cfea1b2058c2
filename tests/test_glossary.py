"""`docs/glossary.md` has one row for each word, and the code has the names that it gives."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "glossary.md").read_text()
ROWS = re.findall(r"^\| (?!word |---)([^|]+?) \| ([^|]+?) \|$", PAGE, re.M)


def test_each_word_has_one_meaning() -> None:
    words = [word.strip("`") for row, _ in ROWS for word in row.split(", ")]
    assert len(words) > 80
    assert sorted(words) == sorted(set(words))


def test_every_class_or_type_that_is_named_exists() -> None:
    named = set(re.findall(r"`([A-Z]\w+)`", " ".join(f"{word} {meaning}" for word, meaning in ROWS)))
    code = [file.read_text() for room in ("engine", "hooks", "proxy") for file in (ROOT / room).rglob("*.py")]
    exist = {name for text in code for name in re.findall(r"^(?:class )?([A-Z]\w+)(?= = |[(:])", text, re.M)}
    assert {name for name in named if not name.isupper() and "_" not in name} <= exist
