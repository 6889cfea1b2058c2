"""Rules of a gitleaks configuration: the secret's group is redacted, a rule without a bound refused."""

import logging
from pathlib import Path

import pytest

from hooks.builtin import secrets
from hooks.builtin.secret_rules import gitleaks
from hooks.builtin.secret_rules.go_patterns import parsed, written
from hooks.builtin.secrets import Secrets
from hooks.loading.loader import HookLoadError, HookSpec, load_hook
from tests.hooks.builtin.streams import said

RULES = r"""
[allowlist]
stopwords = ["notreal"]

[[rules]]
id = "acme-key"
regex = '''\b(acme_(?i)[a-z0-9]{12})(?:['"\s;]|$)'''
keywords = ["acme_"]
entropy = 2.5

[[rules]]
id = "mill-token"
regex = '''(?i)[\w.-]{0,50}?(?:mill)(?:[ \t\w.-]{0,20})(?:=|:)[ "]{0,3}([a-f0-9]{16})(?:["\s]|$)'''
keywords = ["mill"]

[[rules]]
id = "weir-code"
regex = '''weir-(one|two)-code:([[:alnum:]]{6})'''
secretGroup = 2

[[rules.allowlists]]
regexes = ['''^A''']

[[rules]]
id = "long-one"
regex = '''long_[a-z0-9]{20,}'''

[[rules]]
id = "number-near"
regex = '''\b([0-9]{9})\b'''
keywords = ["turbine"]

[[rules]]
id = "in-a-match"
regex = '''(?:label|name)_key = ([0-9]{9})'''
[[rules.allowlists]]
regexTarget = "match"
regexes = ['''name_key''']
"""


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


@pytest.fixture
def guard(tmp_path: Path) -> Secrets:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    entities = ["ACME_KEY", "MILL_TOKEN", "WEIR_CODE", "LONG_ONE", "NUMBER_NEAR", "IN_A_MATCH"]
    return Secrets(rules=file, entities=entities)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key acme_7Xk29QmPz4Lw now", "key [ACME_KEY] now"),
        ("key acme_aaaaaaaaaaaa now", None),
        ("key acme_7notrealz4Lw now", None),
        ("key acme_7Xk29QmPz4Lw. Now", None),
        ('MILL_token: "0f3b9a7c5d1e8264"', 'MILL_token: "[MILL_TOKEN]"'),
        ('quill_token: "0f3b9a7c5d1e8264"', None),
        ("weir-two-code:B7x2Qz", "weir-two-code:[WEIR_CODE]"),
        ("weir-two-code:A7x2Qz", None),
        ("a long_" + "7b2x" * 5 + " one", "a [LONG_ONE] one"),
        ("a long_" + "7b2x" * 900 + " one", "a [LONG_ONE] one"),
        ("turbine 348201957 runs", "turbine [NUMBER_NEAR] runs"),
        ("engine 348201957 runs", None),
        ("label_key = 348201957", "label_key = [IN_A_MATCH]"),
        ("name_key = 348201957", None),
    ],
)
def test_what_a_rule_finds_is_the_same_at_every_cut(guard: Secrets, text: str, expected: str | None) -> None:
    for pieces in ([text], list(text)):
        assert said(guard, pieces) == (expected or text)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (r"x-[a-z]+-[0-9]+", "mill-rule \\(it has no bound: more than its end repeats without one"),
        (r"x-[a-z]+-[0-9]", "mill-rule \\(it has no bound: text is asked for"),
        (r"x.*y ([a-z]{4})", "mill-rule \\(the text before the secret has no bound"),
        (r"(?U)x{3}", "mill-rule \\(the flag U"),
        (r"x(?=y)", "mill-rule"),
        (r"(x", "mill-rule \\(a bracket is not closed"),
        (r"[a-z", "mill-rule \\(\\[ is not complete"),
        ("x" + chr(92), "mill-rule \\(.* is not complete"),
        ("(" * 5000 + ")" * 5000, "mill-rule \\(maximum recursion depth"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused_by_name(tmp_path: Path, rule: str, reason: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(f"[[rules]]\nid = 'mill-rule'\nregex = '''{rule}'''\n")
    with pytest.raises(HookLoadError, match=f"rules: .*{reason}"):
        load_hook(HookSpec("secrets", {"rules": str(file)}))
    file.write_text(
        f"[extend]\ndisabledRules = ['mill-rule']\n[[rules]]\nid = 'mill-rule'\nregex = '''{rule}'''\n"
    )
    load_hook(HookSpec("secrets", {"rules": str(file)}))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("regex = 3", "mill-rule \\(regex: "),
        ("regex = 'x'\nkeywords = 'mill'", "mill-rule \\(keywords: "),
        ("regex = '(x)'\nsecretGroup = 2", "mill-rule \\(secretGroup 2: the pattern has 1 groups"),
        ("regex = 'x'\nentropy = '3'", "mill-rule \\(entropy: "),
        ("regex = 'x'\n[[rules.required]]\nid = 'other'", "mill-rule \\(required: "),
        ("regex = 'x'\n[[rules.allowlists]]\nregexTarget = 'lines'", "mill-rule \\(allowlists.0.regexTarget"),
        ("regex = 'x'\n[[rules]]\nregex = 'y'", "rules.1.id: Field required"),
        ("regex = 'x'\n[extend]\ndisabledRules = 'mill-rule'", "extend.disabledRules: "),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(tmp_path: Path, lines: str, reason: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(f"[[rules]]\nid = 'mill-rule'\n{lines}\n")
    with pytest.raises(HookLoadError, match=f"rules: .*{reason}"):
        load_hook(HookSpec("secrets", {"rules": str(file)}))


def test_an_allow_list_for_one_rule_allows_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    rules = "\n".join(f"[[rules]]\nid = '{one}'\nregex = '{one}_[a-z]{{4}}'" for one in ("mill", "weir"))
    file.write_text(
        f"{rules}\n[[allowlists]]\ntargetRules = ['mill']\nstopwords = ['demo']\n", encoding="utf-8-sig"
    )
    assert said(Secrets(rules=file), ["mill_demo weir_demo"]) == "mill_demo [WEIR]"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("regex = '(a|aa){1,60}b'", "a" * 100),
        ("regex = 'k[ab]{90}'\n[[rules.allowlists]]\nregexes = ['(a|aa|aaa)+c']", "k" + "a" * 90 + " "),
    ],
)
def test_a_search_that_takes_too_long_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, text: str
) -> None:
    monkeypatch.setattr(gitleaks, "TIMEOUT", 0.01)
    monkeypatch.setattr(secrets, "TIMEOUT", 0.01)
    file = tmp_path / "rules.toml"
    file.write_text(f"[[rules]]\nid = 'slow'\n{rule}\n")
    with pytest.raises(TimeoutError):
        Secrets(rules=file).detector.scan(text, is_final=False)


def test_a_rule_about_files_is_left_out_and_a_missing_file_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("[[rules]]\nid = 'key-file'\npath = '''\\.p12$'''\n")
    with caplog.at_level(logging.WARNING):
        Secrets(rules=file)
    assert "key-file is about files of a path" in caplog.text
    with pytest.raises(HookLoadError, match="rules: "):
        load_hook(HookSpec("secrets", {"rules": str(tmp_path / "none.toml")}))
    file.write_text("[extend]\nuseDefault = true\n")
    with pytest.raises(HookLoadError, match="rules: extend"):
        load_hook(HookSpec("secrets", {"rules": str(file)}))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"a(?i)b|c", "a(?i:b)|(?i:c)"),
        (r"(?i)k-(?-i:K)\d{2,}", "(?i:k)-(?:K)[0-9]{2,}"),
        (r"[[:alnum:]_][\w.-]\s", r"[0-9A-Za-z_][0-9A-Za-z_.-][\t\n\f\r ]"),
        (r"x{,3}y{2}z?", r"x\{,3\}y{2}z{0,1}"),
        (r"\x60\x{41}end\z", r"\x60Aend\Z"),
        (r"\bq+?", r"(?a:\b)q{1,}?"),
    ],
)
def test_patterns_of_go_get_the_same_meaning(pattern: str, expected: str) -> None:
    assert "|".join(map(written, parsed(pattern))) == expected
