"""`weir replay --before` shows what a changed guard changes in recorded answers."""

import json
import shutil
from pathlib import Path

import pytest

from proxy.cli.cli import main
from tests.weir import ROOT

RECORDINGS = ROOT / "tests" / "recordings"
REDACT = f"{ROOT}/examples/redact_email.py:RedactEmail"
BANNED = f"{ROOT}/examples/banned_phrase.py:BannedPhrase"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("email", "phrase", "german"):
        shutil.copy(RECORDINGS / f"{name}.jsonl", tmp_path)
    (tmp_path / "weir.yaml").write_text(
        "policies:\n"
        f"  trial: {{hooks: [{{path: '{REDACT}', name: mail, mode: shadow}}]}}\n"
        f"  strict: {{hooks: [{{path: '{REDACT}', name: mail}}, {{path: '{BANNED}', name: phrase}}]}}\n"
        "default_policy: strict\n"
    )
    return tmp_path


def compare(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["replay", *map(str, arguments)])
    told = capsys.readouterr()
    return int(str(ended.value.code)), told.out, told.err


def test_two_policies_on_the_same_recordings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A shadow hook that is enforced: what it would have done is now done."""
    status, told, _ = compare(
        *(folder, "--config", folder / "weir.yaml", "--before-policy", "trial"), capsys=capsys
    )
    assert status == 1
    assert told.splitlines() == [
        f"{folder}/email.jsonl  another answer",
        "  - | Our e-mail address is help@millrace.example.com.",
        "  - output 0: stop, 12 tokens",
        "  - mail, content: would redact 22-47 → '[e-mail]'",
        "  + | Our e-mail address is [e-mail].",
        *told.splitlines()[5:6],
        "  + mail, content: redact 22-47 → '[e-mail]'",
        f"{folder}/german.jsonl  as before",
        *told.splitlines()[8:-4],
        "2 of 3 answers changed",
        "  mail redact: 0 gone, 1 new",
        "  mail would redact: 1 gone, 0 new",
        "  phrase terminate banned_phrase: 0 gone, 1 new",
    ]


def test_two_lists_of_hooks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = folder / "email.jsonl", folder / "phrase.jsonl"
    arguments = (*files, "--before-hook", REDACT, "--hook", BANNED, "--json")
    status, told, _ = compare(*arguments, capsys=capsys)
    mail, phrase = json.loads(told)
    assert status == 1
    assert ([one["action"] for one in mail["gone"]], mail["new"]) == (["redact"], [])
    assert (phrase["gone"], [one["action"] for one in phrase["new"]]) == ([], ["terminate"])
    assert mail["before"][0]["streams"][0]["text"] == "Our e-mail address is [e-mail]."
    assert mail["after"][0]["streams"][0]["text"] == "Our e-mail address is help@millrace.example.com."


def test_the_same_hooks_change_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, told, _ = compare(folder, "--before-hook", REDACT, "--hook", REDACT, capsys=capsys)
    assert (status, told.splitlines()[-1]) == (0, "0 of 3 answers changed")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--before-policy", "trail"], "there is no policy 'trail'; did you mean 'trial'?"),
        (["--before-policy", "trial", "--accept"], "--accept: there is nothing to accept in a comparison"),
    ],
)
def test_why_there_is_no_comparison(
    folder: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, error = compare(folder, "--config", folder / "weir.yaml", *arguments, capsys=capsys)
    assert (status, error) == (2, f"weir replay: {reason}\n")


def test_a_folder_without_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = compare(tmp_path, "--hook", REDACT, capsys=capsys)
    assert (status, error) == (2, f"weir replay: {tmp_path}: there is no recording\n")
