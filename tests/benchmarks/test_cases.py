"""Texts of other projects are read from their sources, and the shares of the tables are right."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from subprocess import check_output

import pytest

from benchmarks import leaks_families, leaks_readings
from benchmarks.cases import detect_secrets, dress, gitleaks, passwords, presidio
from benchmarks.cases.case import Case, with_value
from benchmarks.cases.checkouts import Project, cases_of
from benchmarks.cases.finders import Found, cut_by
from benchmarks.cases.go_source import assigned, functions
from benchmarks.cases.strings import drawn, drawn_between
from benchmarks.cases.tables import is_hit, print_dresses, print_groups
from benchmarks.families import every_entity, families
from hooks.builtin.secret_rules.keys import is_jwt
from hooks.builtin.secrets import Secrets
from hooks.detect.detector import Findings, Match
from hooks.detect.readings import KEYS, Reader
from hooks.detect.rules import Rule, RuleDetector
from hooks.detect.span_guard import SpanGuard

GO = """package rules

var names = []string{"acme"}

func Acme() *config.Rule {
	// a comment with a ` in it
	r := config.Rule{
		RuleID:   "acme-key",
		Regex:    utils.GenerateUniqueTokenRegex(`acme_[a-z]{8}`, false),
		Keywords: names,
	}
	tps := []string{
		"key: acme_" + secrets.NewSecret(`[a-z]{8}`),
		`block "x" {
}
key = "acme_abcdefgh"`,
	}
	tps = append(tps, utils.GenerateSampleSecrets("acme", "acme_hgfedcba")...)
	fps := map[string]string{"a.txt": "acme_\\x41\\n"}
	skipped := other(names)
	return utils.Validate(r, tps, fps)
}
"""
TOML = """
[[rules]]
id = "acme-key"
regex = '''\\b(acme_[a-z]{8})\\b'''
"""


def test_variables_of_a_go_function_are_evaluated() -> None:
    [(name, body)] = functions(GO)
    values = assigned(body, {"secrets.NewSecret": lambda pattern: "12345678"}, {"names": ["acme"]})
    assert name == "Acme"
    assert values["tps"][0] == "key: acme_12345678"
    assert values["fps"] == {"a.txt": "acme_A\n"}
    assert "skipped" not in values


def test_gitleaks_cases(tmp_path: Path) -> None:
    (tmp_path / "cmd/generate/config/rules").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    (tmp_path / "cmd/generate/config/rules/acme.go").write_text(GO)
    (tmp_path / "config/gitleaks.toml").write_text(TOML)
    cases = list(gitleaks.cases(tmp_path))
    keys = [case for case in cases if case.group == "keys of other issuers"]
    assert len(keys) == gitleaks._MOST
    assert all(re.fullmatch("acme_[a-z]{8}", case.value or "") for case in keys)
    assert {case.text for case in cases if case.group == "no value, secrets"} == {"acme_A\n"}
    assert any(case.group == "bare keys" for case in cases)


def test_presidio_cases(tmp_path: Path) -> None:
    (tmp_path / "presidio-analyzer/tests").mkdir(parents=True)
    (tmp_path / "presidio-analyzer/tests/test_xx_id_recognizer.py").write_text(
        '@pytest.fixture\ndef entities():\n    return ["XX_ID"]\n'
        '@pytest.mark.parametrize("text, expected_len, expected_positions",\n'
        '    [("my id 12-34", 1, ((6, 11),)), ("nothing", 0, ())])\ndef test(): ...\n'
    )
    found, empty = presidio.cases(tmp_path)
    assert (found.entity, found.value, found.group) == ("XX_ID", "12-34", "other entities")
    assert (empty.text, empty.value) == ("nothing", None)


def test_detect_secrets_cases(tmp_path: Path) -> None:
    (tmp_path / "tests/plugins").mkdir(parents=True)
    (tmp_path / "tests/plugins/keyword_test.py").write_text(
        "A = 'x{y'\nCASES = [('password = \"{}\"'.format(A), A), ('password = \"\"', None)]\n"
    )
    found, empty = detect_secrets.cases(tmp_path)
    assert (found.text, found.value) == ('password = "x{y"', "x{y")
    assert empty.value is None


def test_made_passwords_stand_where_the_case_says() -> None:
    assert all(case.text[case.start : case.end] == case.value for case in passwords.cases())


@pytest.mark.parametrize("name", dress.DRESSES)
def test_dress_changes_the_value_and_keeps_the_text_around_it(name: str) -> None:
    value = "Ab-12 34@c.example/5678 ghijklmnop" if "Arabic" not in name else "12 34-56"
    value = "ghp_abcdefghij1234567890abcdefghij123456" if "homoglyphs" in name else value
    dressed = [
        case
        for case in dress.cases([with_value("g", "E", f"(={value}=)", value)])
        if case.entity == f"{name}|E"
    ]
    assert dressed, f"{name} changed nothing"
    for case in dressed:
        assert case.text.startswith("(=")
        assert case.text.endswith("=)")
        assert case.value != case.plain == value


@pytest.mark.parametrize(
    "pattern", [r"a{2,3}[^b]c?", r"(?:x|yy)\d+\.[\w-]{4}", r"(a|b)\1(?>c)d++", r"(?a:\D)"]
)
def test_drawn_strings_match(pattern: str) -> None:
    rng = random.Random(1)
    for _ in range(20):
        assert re.fullmatch(pattern, drawn(pattern, rng), re.DOTALL)


def test_a_hit_needs_most_of_the_value() -> None:
    case = Case("g", "E", "x abcd-efgh", "abcd-efgh", 2, 11)
    assert is_hit(case, [(0, 11, "E")])
    assert is_hit(case, [(2, 6, "E"), (7, 9, "E")])
    assert not is_hit(case, [(2, 7, "E")])


class _Spaces:
    name = "spaces"

    def find(self, texts: Sequence[str]) -> Found:
        return Found([[(0, len(text), "E")] if " " in text else [] for text in texts], 1.0)


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [Case("g", "E", "a b", "a b", 0, 3), Case("g", "E", "ab", "ab", 0, 2)]
    print_groups("title", cases, [_Spaces()])
    assert re.search(r"g +2 +50\.0%", capsys.readouterr().out)
    print_dresses([Case("dressed", "dot|E", "a.b", "a.b", 0, 3, "a b")], _Spaces())
    assert re.search(r"dot +1 +0\.0% +0\.0%", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"(?<!x)(?<=k=)\d(?!y)", ("k=", "digit", "")),
        (r"\b\d(?=[;])$", ("", "digit", ";")),
        (r"(?=\d)\d", ("", "digit", "")),
    ],
)
def test_look_arounds_at_the_ends_are_drawn_apart(pattern: str, texts: tuple[str, str, str]) -> None:
    before, value, after = drawn_between(pattern, random.Random(1))
    assert (before, re.sub(r"\d", "digit", value), after) == texts


@pytest.mark.parametrize(
    "rule",
    [
        Rule("KEY", r"(?<=k=)ab[0-9]{6}(?=;)"),
        Rule("KEY", r"ab[0-9]{6}", near="acme", behind="[a-z]{2}: ", check=lambda text: text[2] == "7"),
        Rule("KEY", r"ab[0-9]{6}", until="end"),
        Rule("JWT", r"eyJ[\w.-]{40,80}", check=is_jwt),
    ],
)
def test_streams_with_values_of_families_are_judged(rule: Rule) -> None:
    guard = SpanGuard(Reader(RuleDetector([rule]), KEYS))
    [family] = families(guard)
    rng = random.Random(1)
    before, value, after = family.text(rng)
    assert RuleDetector([rule]).scan(f"{before}{value}{after}")[0]
    guarded = leaks_families.Guarded("one", guard, {"KEY 0": [(before, value, after)]})
    for _ in range(10):
        text = leaks_families.random_text(rng, guarded, Counter())
        spans = cut_by(guard.detector, text)
        assert asyncio.run(leaks_families.problem(rng, guard, text, spans)) is None


@pytest.mark.parametrize("guard", [every_entity(), Secrets()], ids=["pii", "secrets"])
def test_a_value_is_drawn_for_each_rule_of_a_guard(guard: SpanGuard) -> None:
    rng = random.Random(1)
    for family in families(guard):
        before, value, after = family.text(rng)
        assert value, (family.rule.entity, before, after)


def test_streams_of_escapes_are_judged() -> None:
    assert asyncio.run(leaks_readings.run(50, seed=1)) > 10


def test_a_guard_that_misses_a_value_in_a_stream_is_told() -> None:
    class Forgets(RuleDetector):
        def scan(
            self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()
        ) -> Findings:
            return ([], len(text)) if not is_final else super().scan(text, start, is_final, taken)

    guard = SpanGuard(Forgets([Rule("KEY", r"ab[0-9]{6}")]))
    text = "so ab123456 is it"
    spans = cut_by(guard.detector, text)
    told = asyncio.run(leaks_families.problem(random.Random(1), guard, text, spans))
    assert told is not None
    assert "whole 'so [KEY] is it'" in told


def test_a_project_is_fetched_once_at_its_commit(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *arguments]
        return check_output(command, text=True).strip()

    git("init", "--quiet")
    (tmp_path / "tests.py").write_text("of the commit")
    git("add", ".")
    git("commit", "--quiet", "--message", "m")
    project = Project("acme", str(tmp_path), git("rev-parse", "HEAD"), detect_secrets.cases)
    for _ in range(2):
        assert (project.fetched(tmp_path / "build") / "tests.py").read_text() == "of the commit"
        (tmp_path / "tests.py").write_text("later")


def test_a_project_that_cannot_be_fetched_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    project = Project("acme", str(tmp_path / "nowhere"), "0" * 40, detect_secrets.cases)
    for _ in range(2):
        assert cases_of([project], {}) == []
        assert "Not measured: the test strings of acme. fatal:" in capsys.readouterr().out
