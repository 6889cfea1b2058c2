"""`weir hooks trace` shows each call of each hook on one stream, and what a client then has."""

import re
from ast import literal_eval
from pathlib import Path

import pytest

from proxy.cli.cli import main

BANNED = "examples/banned_phrase.py:BannedPhrase"
HOOKS = """
from hooks import emit, refuse

class Raises:
    def __call__(self, chunk):
        if "two" in chunk.text:
            raise ZeroDivisionError
        return emit(chunk.pending)

class Refuses(Raises):
    def on_request(self, request):
        return refuse("not today")
"""


def traced(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], object]:
    """The lines, with single spaces, and the exit status."""
    with pytest.raises(SystemExit) as ended:
        main(["hooks", "trace", *arguments])
    return [re.sub(" +", " ", line) for line in capsys.readouterr().out.splitlines()], ended.value.code


def test_each_call_is_a_row_with_what_left_and_what_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Our secret project is called Project Bluebird."
    assert traced(capsys, text, "--hook", BANNED, "--cut", "18,32") == (
        [
            "call hook channel chunk verdict released held",
            "1 BannedPhrase content 'Our secret project' hold 'Our secret ' 'project'",
            "2 BannedPhrase content ' is called Pro' hold 'project is called ' 'Pro'",
            "3 BannedPhrase content 'ject Bluebird.' terminate: banned_phrase '' ''",
            "the client has content: 'Our secret project is called '",
            "ended: content_filter, banned_phrase",
        ],
        0,
    )


@pytest.mark.parametrize("hooks", [["pii"], ["pii", "secrets"], ["secrets", "pii"]])
def test_guards_that_a_screen_could_read_for_are_called_with_all_text(
    capsys: pytest.CaptureFixture[str], hooks: list[str]
) -> None:
    text = "Write to ann@initech.com, or my key is AKIAIOSFODNN7EXAMPLQ now. That is all that I know."
    lines, _ = traced(capsys, text, *(part for hook in hooks for part in ("--hook", hook)))
    first, last = ([line for line in lines if f" {hook.title()} " in line] for hook in (hooks[0], hooks[-1]))
    shown = [re.findall(r"content ('.*?') \w+ '", line)[0] for line in first]
    left = [re.findall(r"('[^']*') '[^']*'$", line)[0] for line in last]
    assert "".join(map(literal_eval, shown)) == text
    assert f"the client has content: {''.join(map(literal_eval, left))!r}" in lines


def test_a_recording_is_traced(capsys: pytest.CaptureFixture[str]) -> None:
    lines, code = traced(
        capsys,
        "--recording",
        "tests/recordings/email.jsonl",
        "--hook",
        "examples/redact_email.py:RedactEmail",
    )
    assert "12 RedactEmail content '' redact '[e-mail].' ''" in lines
    assert "the client has content: 'Our e-mail address is [e-mail].'" in lines
    assert code == 0


def test_a_hook_that_fails_or_refuses_is_the_last_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(HOOKS)
    lines, code = traced(capsys, "one two", "--hook", f"{tmp_path}/mine.py:Raises")
    assert lines[-3] == "2 Raises content ' two' error: ZeroDivisionError '' ''"
    assert lines[-2] == "the client has content: 'one'"
    assert lines[-1] == "failed: Raises, ZeroDivisionError"
    assert code == 1
    lines, code = traced(capsys, "one two", "--hook", f"{tmp_path}/mine.py:Refuses")
    assert (lines[1:], code) == (["failed: The prompt was refused: not today"], 1)


def test_a_hook_in_shadow_mode_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text(f"engine: echo\nhooks: [{{path: '{Path(BANNED).absolute()}', mode: shadow}}]\n")
    lines, _ = traced(capsys, "project bluebird.", "--config", str(config), "--cut", "20")
    assert any("terminate: banned_phrase (shadow) '' ''" in line for line in lines)
    assert "the client has content: 'project bluebird.'" in lines


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "either a text or --recording is needed"),
        (["x", "--recording", "y"], "either a text or --recording is needed"),
        (["--recording", "no/such.jsonl"], "no/such.jsonl"),
        (["x", "--hook", "no.such.Hook"], "could not be imported"),
        (["x", "--cut", "0"], "'0' is not numbers from 1 on, as 18,32"),
        (["x", "--cut", "a"], "'a' is not numbers from 1 on, as 18,32"),
    ],
)
def test_what_cannot_be_traced_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["hooks", "trace", *arguments])
    assert reason in capsys.readouterr().err
