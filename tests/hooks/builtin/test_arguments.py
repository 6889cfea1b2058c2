"""A guard's arguments are right, or the server does not start, and says why."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hooks.builtin.phrases import Phrases
from hooks.loading.loader import SHORT_NAMES, HookLoadError, HookSpec, load_hook
from tests.weir import run_weir

RIGHT: dict[str, dict[str, Any]] = {
    "phrases": {"phrases": ["hunter2"]},
    "patterns": {"patterns": ["a"]},
    "json_schema": {"tools": True},
    "remote": {"url": "http://127.0.0.1:1/x"},
    "classifier": {"model": "./nowhere", "labels": ["rude"]},
}
"""The arguments that a guard of `WRONG` needs, without the wrong one."""

ONE = "Value should have at least 1 item"
A_LIST = "Input should be a valid array"
A_TEXT = "Input should be a valid string"
A_BOOL = "Input should be a valid boolean"
A_NUMBER = "Input should be a valid number"
AN_INT = "Input should be a valid integer"
ONLY_FIELD = "template: the only field is {entity}"

WRONG: list[tuple[str, dict[str, Any], str]] = [
    # texts that are true, whatever they say
    ("audit", {"include_text": "no"}, f"include_text: {A_BOOL}"),
    ("audit", {"required": "false"}, f"required: {A_BOOL}"),
    ("phrases", {"word_boundaries": "false"}, f"word_boundaries: {A_BOOL}"),
    ("json_schema", {"tools": "yes"}, f"tools: {A_BOOL} or Input should be an object"),
    # what would find nothing
    ("phrases", {"phrases": []}, "phrases: the list is empty"),
    ("phrases", {"phrases": ["\u200b"]}, "phrases: nothing is left of"),
    ("patterns", {"patterns": {"x": ""}}, "patterns: a match of pattern '' has no character"),
    ("patterns", {"patterns": ["^(?=a)"]}, "patterns: a match of pattern '^(?=a)' has no character"),
    ("pii", {"locales": []}, f"locales: {ONE}"),
    ("pii", {"locales": ["atlantis"]}, "locales are some of ar, at, au, be"),
    (
        "pii",
        {"entities": ["SHOE_SIZE"]},
        "entities are some of EMAIL_ADDRESS, IBAN_CODE, CREDIT_CARD, CRYPTO",
    ),
    ("secrets", {"entities": ["SKELETON_KEY"]}, "entities are some of ADOBE_SECRET, AGE_KEY"),
    ("pii", {"entities": ["XX"]}, "and countries (AR, AT, AU, BE"),
    ("pii", {"allow": ["/(/"]}, "allow: missing )"),
    ("pii", {"recognizers": "/no/such/file"}, "recognizers: [Errno 2] No such file"),
    ("pii", {"entities": []}, f"entities: {ONE}"),
    ("secrets", {"entities": []}, f"entities: {ONE}"),
    ("presidio", {"entities": []}, f"entities: {ONE}"),
    ("names", {"entities": []}, f"entities: {ONE}"),
    ("names", {"entities": ["SHOE"]}, "entities[0]: Input should be 'PERSON'"),
    ("names", {"threshold": 75}, "threshold: Input should be less than or equal to 1"),
    ("remote", {"labels": []}, f"labels: {ONE}"),
    ("classifier", {"labels": []}, f"labels: {ONE}"),
    ("prompt_leak", {"roles": []}, f"roles: {ONE}"),
    ("prompt_leak", {"roles": ["sytem"]}, "roles[0]: Input should be 'system', 'developer'"),
    ("phrases", {"channels": []}, f"channels: {ONE}"),
    ("repetition", {"channels": ["tool"]}, "channels[0]: Input should be 'content', 'reasoning'"),
    ("json_schema", {"tools": False}, "json_schema needs a schema, tools or both"),
    ("remote", {"threshold": 50}, "threshold: Input should be less than or equal to 1"),
    ("classifier", {"threshold": float("nan")}, "threshold: Input should be"),
    ("pii", {"entities": ["US_SSN"], "locales": ["de"]}, "entities: US_SSN is of a country that locales"),
    # what would come to nothing
    ("phrases", {"text": "No."}, "text: it is for terminate, rewind or a refused prompt"),
    ("phrases", {"text": "No.", "prompt": "redact"}, "text: it is for terminate, rewind or a refused prompt"),
    ("phrases", {"scope": "output"}, "scope: it says what to end, and redact ends nothing"),
    ("repetition", {"action": "suppress", "scope": "output"}, "scope: it says what to end, and suppress"),
    ("phrases", {"action": "terminate", "template": "*"}, "template: it is for redact"),
    ("phrases", {"action": "suppress", "prompt": "refuse", "template": "*"}, "template: it is for redact"),
    ("prompt_leak", {"prompt": "redact"}, "prompt: this guard is about answers"),
    ("remote", {"detector": "toxic"}, "detector is of api: fms"),
    ("remote", {"api": "fms", "detector": "x", "model": "m"}, "model is of api: moderations, litellm, nemo"),
    # of another type, or out of bounds
    ("phrases", {"text": 5, "action": "terminate"}, f"text: {A_TEXT}"),
    ("phrases", {"template": 5}, f"template: {A_TEXT}"),
    ("phrases", {"template": "\ud800"}, "template: half a surrogate pair is not text"),
    ("phrases", {"text": "\udc00", "action": "terminate"}, "text: half a surrogate pair is not text"),
    ("phrases", {"template": "{entity.__class__}"}, ONLY_FIELD),
    ("phrases", {"template": "{entity!r:>9}"}, ONLY_FIELD),
    ("phrases", {"template": "{}"}, ONLY_FIELD),
    ("phrases", {"template": "{entity"}, "template: expected '}' before end of string"),
    ("phrases", {"phrases": [5]}, f"phrases[0]: {A_TEXT}"),
    ("phrases", {"phrases": None}, f"phrases: {A_LIST}"),
    ("phrases", {"phrases": "hunter2"}, f"phrases: {A_LIST}"),
    ("phrases", {"action": "delete"}, "action: Input should be 'redact', 'suppress'"),
    ("phrases", {"fold": ["upper"]}, "fold[0]: Input should be 'case', 'compatibility'"),
    (
        "phrases",
        {"prompt": "terminate"},
        "prompt: Input should be 'redact', 'refuse', 'refuse_new' or 'taint'",
    ),
    ("phrases", {"scope": "all", "action": "terminate"}, "scope: Input should be 'request' or 'output'"),
    ("phrases", {"alternatives": True}, "alternatives: Input should be 'withhold' or 'keep'"),
    ("phrases", {"file": "/no/such/file"}, "file: [Errno 2] No such file"),
    ("patterns", {"patterns": [5]}, f"patterns[0]: {A_TEXT}"),
    ("patterns", {"patterns": {"x": 5}}, f"patterns.x: {A_TEXT}"),
    ("patterns", {"patterns": {404: "a"}}, f"patterns.404: {A_TEXT}"),
    ("patterns", {"patterns": ["("]}, "patterns: pattern '(': missing )"),
    ("patterns", {"timeout": "x"}, f"timeout: {A_NUMBER}"),
    ("patterns", {"timeout": -1}, "timeout: Input should be greater than 0"),
    ("patterns", {"timeout": float("inf")}, "timeout: Input should be a finite number"),
    ("patterns", {"max_length": {"pattern": 0}}, "max_length.pattern: Input should be greater than"),
    ("repetition", {"min_repeats": 2.5}, f"min_repeats: {AN_INT}"),
    ("repetition", {"min_repeats": 1}, "min_repeats: Input should be greater than or equal to 2"),
    ("repetition", {"min_length": 0}, "min_length: Input should be greater than or equal to 1"),
    ("repetition", {"max_period": 0}, "max_period: Input should be greater than or equal to 1"),
    ("repetition", {"min_repeats": True}, f"min_repeats: {AN_INT}"),
    ("prompt_leak", {"min_words": 0}, "min_words: Input should be greater than or equal to 1"),
    ("prompt_leak", {"min_words": "8"}, f"min_words: {AN_INT}"),
    ("prompt_leak", {"allow": "the"}, f"allow: {A_LIST}"),
    ("secrets", {"entities": "JWT"}, f"entities: {A_LIST}"),
    ("pii", {"locales": [False]}, f"locales[0]: {A_TEXT}"),  # Norway, as YAML has it
    ("audit", {"max_size": "64MB"}, f"max_size: {AN_INT}"),
    ("audit", {"max_size": -1}, "max_size: Input should be greater than or equal to 1"),
    ("audit", {"format": "csv"}, "format: Input should be 'jsonl' or 'sqlite'"),
    (
        "audit",
        {"path": "/no/such/folder/audit"},
        "path: /no/such/folder/audit cannot be written: No such file",
    ),
    ("json_schema", {"schema": "reqest"}, "schema: [Errno 2] No such file or directory: 'reqest'"),
    ("json_schema", {"schema": 5}, "schema: Input should be an object"),
    ("json_schema", {"tools": {"send": 5}}, "tools.send: Input should be an object"),
    ("json_schema", {"tools": {"send": {"type": "all"}}}, "tools.send: "),
    ("json_schema", {"incomplete": "yes"}, "incomplete: Input should be 'terminate' or 'allow'"),
    ("presidio", {"configuration": "/no/such/file"}, "configuration: file /no/such/file not found"),
    # of no name that there is
    ("phrases", {"chanels": ["content"]}, "unexpected keyword argument 'chanels'; did you mean 'channels'?"),
    ("json_schema", {"prompt": "redact"}, "unexpected keyword argument 'prompt'; there are schema, tools"),
    (
        "audit",
        {"include_txt": True},
        "unexpected keyword argument 'include_txt'; did you mean 'include_text'?",
    ),
]


@pytest.fixture(autouse=True)
def mode() -> str:
    """A guard is built alike wherever it runs."""
    return "in-process"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("guard", "arguments", "says"), WRONG, ids=str)
def test_an_argument_that_would_disable_or_invert_a_guard_is_named(
    guard: str, arguments: dict[str, Any], says: str
) -> None:  # contract 1.4
    if guard == "presidio":
        pytest.importorskip("presidio_analyzer")
    with pytest.raises(HookLoadError, match=re.escape(says)):
        load_hook(HookSpec(guard, {**RIGHT.get(guard, {}), **arguments}))


@pytest.mark.parametrize("guard", SHORT_NAMES)
def test_no_guard_takes_an_argument_that_it_does_not_know(guard: str) -> None:
    if guard == "presidio":
        pytest.importorskip("presidio_analyzer")
    with pytest.raises(HookLoadError, match=re.escape("unexpected keyword argument 'loud'")):
        load_hook(HookSpec(guard, {"loud": True}))


def test_what_another_hook_hands_on_is_checked_as_well() -> None:
    arguments: dict[str, Any] = {"word_boundaries": "false", "action": "delete"}
    with pytest.raises(ValueError, match=r"word_boundaries: .*; action: "):
        Phrases(["hunter2"], **arguments)


def test_all_that_is_wrong_is_said_at_once_and_no_value_of_it() -> None:
    with pytest.raises(HookLoadError) as caught:
        load_hook(HookSpec("phrases", {"phrases": "hunter2", "chanels": [], "action": "hunter2"}))
    assert "phrases: " in str(caught.value)
    assert "'chanels'" in str(caught.value)
    assert "action: " in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("command", ["serve", "serve in workers", "hooks check"])
def test_a_command_says_it_in_one_line(tmp_path: Path, command: str) -> None:
    wrong = {"phrases": ["hunter2"], "chanels": ["content"]}
    (tmp_path / "weir.yaml").write_text(json.dumps({"hooks": [{"path": "phrases", "args": wrong}]}))
    serve = ["serve", "--config", str(tmp_path / "weir.yaml"), "--engine", "echo", "--port", "0"]
    arguments = {
        "serve": serve,
        "serve in workers": [*serve, "--hook-workers", "1"],
        "hooks check": ["hooks", "check", "phrases", "--args", json.dumps(wrong)],
    }[command]
    ran = run_weir(*arguments)
    assert ran.returncode == 1
    said = [line for line in ran.stderr.splitlines() if "loading hook" not in line]
    assert len(said) == 1
    assert "unexpected keyword argument 'chanels'; did you mean 'channels'?" in said[0]


@pytest.mark.parametrize(
    ("guard", "args", "content"),
    [
        ("phrases", {"file": "~/given"}, "hunter2"),
        ("json_schema", {"schema": "~/given"}, '{"type": "object"}'),
        ("json_schema", {"tools": {"send": "~/given"}}, '{"type": "object"}'),
        ("judge", {"policy": "~/given"}, "Talk of tea alone."),
        ("audit", {"path": "~/given"}, ""),
        ("audit", {"path": "~/made", "format": "sqlite"}, ""),
    ],
)
def test_a_tilde_is_the_home_folder(
    guard: str,
    args: dict[str, Any],
    content: str,
    here: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "given").write_text(content)
    load_hook(HookSpec(guard, args))
    assert not (tmp_path / "~").exists()
