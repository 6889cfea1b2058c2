"""`weir scan`: findings in files, without the values, with an exit status."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.scan.findings import find
from proxy.cli.scan.sarif import sarif, uri_of
from tests.weir import run_weir
from weir import Guards, HookSpec

MAIL, KEY = "ann@millrace.initech.com", "AKIAQ3EGRZ7PLMW2XK4V"


def scanned(folder: Path, *arguments: str, **options: Any) -> tuple[str, str, int]:
    ended = run_weir("scan", *arguments, cwd=folder, **options)
    assert MAIL not in ended.stdout + ended.stderr
    assert KEY not in ended.stdout + ended.stderr
    return ended.stdout, ended.stderr, ended.returncode


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "sub" / "a b.txt").write_text(f"🎉 line\r\n  {MAIL}, and\nkey: {KEY}")
    (tmp_path / "sub" / ".git" / "packed").write_text(MAIL)
    (tmp_path / "clean.md").write_bytes(b"\xff\x00 nothing here\n")
    return tmp_path


def test_findings_have_their_places_and_the_status_is_1(files: Path) -> None:
    assert scanned(files, ".", "clean.md") == (
        "sub/a b.txt:2:3: pii: EMAIL_ADDRESS (24 characters)\n"
        "sub/a b.txt:3:6: secrets: AWS_ACCESS_KEY (20 characters)\n",
        "",
        1,
    )


def test_files_without_findings_have_the_status_0(files: Path) -> None:
    assert scanned(files, "clean.md") == ("", "", 0)
    printed, _, status = scanned(files, "--format", "sarif", "clean.md")
    assert (json.loads(printed)["runs"][0]["results"], status) == ([], 0)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing.txt"], "No such file"),
        (["--hook", "phrases", "clean.md"], "the list is empty"),
        (["--hook", "breaks.py:Breaks", "clean.md"], "the hook breaks.py:Breaks failed on clean.md"),
    ],
)
def test_what_cannot_be_scanned_has_the_status_2(files: Path, arguments: list[str], reason: str) -> None:
    (files / "breaks.py").write_text(
        "from hooks import emit\n"
        "class Breaks:\n"
        "    def __call__(self, chunk):\n"
        "        assert 'nothing' not in chunk.pending\n"
        "        return emit(chunk.pending)\n"
    )
    printed, said, status = scanned(files, *arguments)
    assert (printed, status) == ("", 2)
    assert reason in said


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings_are_read_too(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"{MAIL} is ours".encode(encoding))
    assert scanned(tmp_path, ".") == ("a.txt:1:1: pii: EMAIL_ADDRESS (24 characters)\n", "", 1)


def test_a_files_name_forges_no_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb\x1b.txt").write_text(MAIL)
    printed, _, status = scanned(tmp_path, ".")
    assert (printed.count("\n"), "\x1b" in printed, status) == (1, False, 1)


def test_a_link_that_leads_nowhere_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "no_such_file")
    _, error, status = scanned(tmp_path, ".")
    assert ("a.txt" in error, status) == (True, 2)


def test_the_guards_may_be_those_of_a_server(files: Path) -> None:
    hook = "{path: phrases, args: {phrases: [line, key]}}"
    (files / "weir.yaml").write_text(f"hooks: [{hook}]\n")
    printed, _, status = scanned(files, "--config", "weir.yaml", "sub")
    assert printed.splitlines() == [
        "sub/a b.txt:1:3: phrases: phrase (4 characters)",
        "sub/a b.txt:3:1: phrases: phrase (3 characters)",
    ]
    assert status == 1


def test_a_guard_that_only_suspects_says_of_which_text() -> None:
    guard = Guards(HookSpec("phrases", {"phrases": ["project"], "action": "suspect"}))
    assert [(one.rule, one.offset) for one in find(guard, "a project and a project")] == [("phrase", 0)]


def test_sarif_names_rules_and_regions_in_code_points(files: Path) -> None:
    printed, _, status = scanned(files, "--format", "sarif", "sub")
    log = json.loads(printed)
    (run,) = log["runs"]
    assert (log["version"], run["columnKind"], status) == ("2.1.0", "unicodeCodePoints", 1)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["pii/EMAIL_ADDRESS", "secrets/AWS_ACCESS_KEY"]
    text = (files / "sub" / "a b.txt").read_bytes().decode()
    for result, value in zip(run["results"], (MAIL, KEY), strict=True):
        assert rules[result["ruleIndex"]] == result["ruleId"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "sub/a%20b.txt"
        region = place["region"]
        assert text[region["charOffset"] :][: region["charLength"]] == value
        line = text.split("\n")[region["startLine"] - 1]
        assert region["startLine"] == region["endLine"]
        assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == value


def test_paths_become_uris(tmp_path: Path) -> None:
    assert uri_of(None) == "stdin"
    assert uri_of(Path("a/b#c.txt")) == "a/b%23c.txt"
    assert uri_of(tmp_path / "ü.txt") == (tmp_path / "ü.txt").as_uri()


def test_a_finding_over_lines_ends_on_the_later_one() -> None:
    guard = Guards(HookSpec("phrases", {"phrases": ["project bluebird"], "action": "terminate"}))
    (one,) = find(guard, "It is project\nbluebird")
    assert (one.start.line, one.start.column, one.end.line, one.end.column) == (1, 7, 2, 9)
    assert sarif([(None, one)])["runs"][0]["results"][0]["level"] == "error"
