"""`docs/contract.md` and those who cite it agree: no clause is made up, and a test shows every clause."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contract.md").read_text()
CLAUSES = dict(re.findall(r"^\*\*(\d+\.\d+)\*\*\s+(.+?)(?=^\*\*\d|^## |\Z)", PAGE, re.M | re.S))
SECTIONS = re.findall(r"^## (\d+)\. ", PAGE, re.M)
NOT_BUILT = {number for number, text in CLAUSES.items() if "**Not built yet" in " ".join(text.split())}

NOT_OF_CLIENTS = {
    "how hooks are found and built": ("1.1", "1.2", "1.8"),
    "how hooks are started, tested, run and closed": ("1.4", "1.6", "1.7", "1.9", "1.10", "8.12"),
    "what a hook says of itself, and what no setting does": ("2.15", "3.14", "3.19", "4.3"),
    "one endpoint alone": ("5.2", "8.13", "8.16"),
    "what an engine does": ("5.5", "6.4", "7.1", "7.2", "7.3", "7.4", "7.6", "7.7", "8.5"),
}
"""The clauses that speak neither of a channel nor of what a client gets, by their subject."""

_NUMBER = r"\d+(?:\.\d+)?"
_CITATION = re.compile(rf"\bcontract[\s#]+({_NUMBER}(?:,\s+{_NUMBER})*)", re.IGNORECASE)
_EXPECTED_TO_FAIL = re.compile(rf"xfail\([^)]*\bcontract ({_NUMBER})")


@cache
def written() -> list[Path]:
    """The repository's files, new ones included; not what git ignores, such as `node_modules`."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [file for file in map(ROOT.joinpath, filter(None, names)) if file.is_file()]


def cited_in(files: Iterable[Path], citation: re.Pattern[str] = _CITATION) -> dict[str, set[str]]:
    """By number, the files that cite it."""
    found: dict[str, set[str]] = {}
    for file in files:
        for numbers in citation.findall(file.read_text()):
            for number in re.findall(_NUMBER, numbers):
                found.setdefault(number, set()).add(str(file.relative_to(ROOT)))
    return found


def files_of_tests() -> Iterator[Path]:
    return (file for file in written() if file.match("test_*.py") and file != Path(__file__))


cited_by_tests = cache(lambda: cited_in(files_of_tests()))


def test_clauses_are_numbered_without_a_gap() -> None:
    for section in SECTIONS:
        numbers = [number for number in CLAUSES if number.startswith(f"{section}.")]
        assert numbers == [f"{section}.{i}" for i in range(1, len(numbers) + 1)]
    assert {number.partition(".")[0] for number in CLAUSES} == set(SECTIONS)


def test_every_clause_that_is_cited_exists() -> None:
    cited = cited_in(file for file in written() if file.suffix in (".py", ".md"))
    assert {number: files for number, files in cited.items() if number not in {*CLAUSES, *SECTIONS}} == {}


@pytest.mark.parametrize("number", CLAUSES)
def test_every_clause_is_cited_by_a_test(number: str) -> None:
    assert number in cited_by_tests()


def test_a_clause_of_what_clients_get_is_shown_on_every_endpoint() -> None:
    """`tests/contract` runs each of its tests over all endpoints, streaming and not."""
    shown = cited_in((ROOT / "tests" / "contract").glob("test_*.py"))
    left_out = sorted(number for numbers in NOT_OF_CLIENTS.values() for number in numbers)
    assert sorted(CLAUSES.keys() - shown.keys()) == left_out


def test_a_clause_is_marked_as_not_built_if_and_only_if_its_test_is_expected_to_fail() -> None:
    """Such a test is strict: it fails once the clause is built, and then the mark must go as well."""
    assert set(cited_in(files_of_tests(), _EXPECTED_TO_FAIL)) == NOT_BUILT
