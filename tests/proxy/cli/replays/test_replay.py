"""`weir replay` shows the result of hooks on a recording, and exits with 1 if it differs from the accepted
one."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.protocol import Delta, ProbeInfo, PromptScores, Token
from engine.streams.recording import Recording, TimedDelta
from hooks.testing.streams import request_for
from proxy.cli.cli import main
from tests.processes import killed_at_end
from tests.weir import ROOT, PipedWeir, run_weir

RECORDINGS = ROOT / "tests" / "recordings"
REDACT = "examples/redact_email.py:RedactEmail"
BANNED = "examples/banned_phrase.py:BannedPhrase"
UPPER = "examples/upper_case.py:UpperCase"

replay = partial(run_weir, "replay")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return Path(shutil.copy(RECORDINGS / "email.jsonl", tmp_path))


@pytest.mark.slow
def test_the_output_is_the_one_in_the_guide() -> None:
    guide = (ROOT / "docs" / "testing-guards.md").read_text()
    (shown,) = re.findall(r"\$ weir (replay .*?)\n(.*?)```", guide, re.DOTALL)
    ended = replay(*shown[0].split()[1:])
    assert ended.stdout.strip() == shown[1].strip()
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_conversation_that_the_page_saved_is_told_from_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "weir-chat.json"
    turn = {"message": "a secret", "answers": []}
    file.write_text(json.dumps({"version": 1, "turns": [turn]}, indent=2))
    ended = replay(file)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"weir replay: {file}: this is a conversation that the page saved, and no recording. Press Recording"
        " below an answer there, and replay the file of it\n"
    )


def test_a_change_is_reported_and_can_be_accepted(recording: Path) -> None:
    assert replay(recording, "--hook", REDACT, "--accept").returncode == 0
    same = replay(recording, "--hook", REDACT)
    assert same.returncode == 0
    assert "  as accepted\n" in same.stdout
    changed = replay(recording, "--hook", UPPER)
    assert changed.returncode == 1
    lines = changed.stdout.splitlines()
    told = [line.strip() for line in lines[lines.index(f"  changed since {accepted(recording)}:") + 1 :]]
    assert "- | Our e-mail address is [e-mail]." in told
    assert "+ | OUR E-MAIL ADDRESS IS HELP@MILLRACE.EXAMPLE.COM." in told
    assert "- RedactEmail, content: redact 22-47 → '[e-mail]'" in told
    assert replay(recording, "--hook", UPPER, "--accept").returncode == 0
    assert replay(recording, "--hook", UPPER).returncode == 0


def test_another_way_to_name_a_hook_is_no_change(recording: Path) -> None:
    assert replay(recording, "--hook", REDACT, "--hook", UPPER, "--accept").returncode == 0
    for other in (ROOT / REDACT, f"./{REDACT}", "examples.redact_email.RedactEmail"):
        assert replay(recording, "--hook", other, "--hook", UPPER).returncode == 0
    assert replay(recording, "--hook", UPPER, "--hook", REDACT).returncode == 1


def test_hooks_of_the_same_name_are_numbered(recording: Path) -> None:
    shown = replay(recording, "--hook", UPPER, "--hook", f"./{UPPER}").stdout
    assert shown.index("UpperCase, content of output 0") < shown.index("UpperCase 2, content of output 0")


def accepted(recording: Path) -> Path:
    return recording.with_name(f"{recording.stem}.accepted.json")


def test_a_result_is_kept_in_utf_8_wherever_it_is_made(tmp_path: Path) -> None:
    chinese = Path(shutil.copy(RECORDINGS / "chinese.jsonl", tmp_path))
    elsewhere = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    elsewhere["PYTHONIOENCODING"] = "utf-8"
    command = [sys.executable, "-m", "proxy", "replay", str(chinese), "--accept"]
    ended = subprocess.run(command, cwd=ROOT, env=elsewhere, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert replay(chinese).stdout.endswith("  as accepted\n\n")


def test_a_result_has_the_mode_of_its_recording(recording: Path) -> None:
    recording.chmod(0o600)
    replay(recording, "--accept")
    assert stat.S_IMODE(accepted(recording).stat().st_mode) == 0o600


def test_a_different_hold_is_no_change_if_the_same_text_is_released(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "patient.py").write_text(
        "from hooks import emit, hold\n"
        "class Patient:\n"
        "    def __call__(self, chunk):\n"
        "        return emit(chunk.pending) if chunk.is_final else hold()\n"
    )
    replay(recording, "--accept")
    assert replay(recording, "--hook", f"{tmp_path}/patient.py:Patient").returncode == 0


def test_every_verdict_is_in_the_json(recording: Path) -> None:
    replay(recording, "--hook", REDACT, "--accept")
    (one,) = json.loads(replay(recording, "--hook", REDACT, "--json").stdout)
    assert one["file"] == str(recording)
    assert one["said"][0]["streams"][0]["text"] == "Our e-mail address is help@millrace.example.com."
    assert one["released"][0]["streams"][0]["text"] == "Our e-mail address is [e-mail]."
    assert one["released"][0]["finish_reason"] == "stop"
    assert one["said"][0]["num_tokens"] > one["released"][0]["num_tokens"]
    assert [verdict["action"] for verdict in one["verdicts"]] == ["hold"] * 11 + ["redact"]
    assert one["verdicts"][-1]["spans"] == [[22, 47, "[e-mail]"]]
    assert (one["changes"], one["failure"]) == ([], None)


def test_each_channel_is_shown_if_the_parsers_are_named() -> None:
    parsers = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes")
    files = [RECORDINGS / f"{name}.jsonl" for name in ("reasoning", "tool_call")]
    shown = replay(*files, "--hook", REDACT, *parsers).stdout
    assert "output 0, reasoning\n    both   | The user wants the password hunter2." in shown
    assert 'output 0, tool_call send_mail\n    model  | {"to": "help@millrace.example.com"}' in shown
    assert 'client | {"to": "[e-mail]"}' in shown
    assert "output 0 ended: tool_calls;" in shown


def test_an_ending_shows_its_reason() -> None:
    shown = replay(RECORDINGS / "phrase.jsonl", "--hook", BANNED).stdout
    assert "output 0 ended: content_filter, banned_phrase; 5 of 9 tokens" in shown
    assert "terminate 29-45  'Project Bluebird' → ''  banned_phrase" in shown


def test_several_hooks_are_shown_in_their_order() -> None:
    shown = replay(RECORDINGS / "phrase.jsonl", "--hook", UPPER, "--hook", BANNED).stdout
    assert shown.index("UpperCase, content of output 0") < shown.index("BannedPhrase, content of output 0")
    assert "'PROJECT BLUEBIRD' → ''  banned_phrase" in shown


def test_hooks_come_with_arguments_and_modes_from_a_configuration(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(
        "from hooks import emit\n"
        "class Add:\n"
        "    def __init__(self, mark): self.mark = mark\n"
        "    def __call__(self, chunk): return emit(chunk.pending + (self.mark if chunk.is_final else ''))\n"
    )
    (tmp_path / "weir.yaml").write_text(
        f"hooks:\n"
        f"  - {{path: '{tmp_path}/guards.py:Add', args: {{mark: ' Bye!'}}, name: polite}}\n"
        f"  - {{path: '{ROOT}/{REDACT}', mode: shadow, name: watcher}}\n"
    )
    shown = replay(recording, "--config", tmp_path / "weir.yaml").stdout
    assert "client | Our e-mail address is help@millrace.example.com. Bye!" in shown
    assert "polite, content of output 0" in shown
    assert "would redact 22-47  'help@millrace.example.com' → '[e-mail]'" in shown


def test_a_hook_that_fails_is_shown_as_a_client_sees_it(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from hooks import emit\n"
        "class Bad:\n"
        "    def __call__(self, chunk):\n"
        "        if '@' in chunk.text: raise ZeroDivisionError('secret')\n"
        "        return emit(chunk.pending)\n"
    )
    ended = replay(recording, "--hook", f"{tmp_path}/bad.py:Bad")
    assert ended.returncode == 0
    assert "failed: A guardrail failed, so the request was ended. (ZeroDivisionError)" in ended.stdout
    assert "client | Our e-mail address is help\n" in ended.stdout
    assert "error" in ended.stdout


def test_a_recording_without_the_scores_that_a_hook_reads_is_refused(recording: Path, tmp_path: Path) -> None:
    ended = replay(recording, "--hook", "probe")
    assert (ended.returncode, ended.stdout) == (2, "")
    for part in (str(recording), "the hook Probe", "this answer has none", "weir serve", "--probe FILE"):
        assert part in ended.stderr
    scored([("One. ", 0.0), ("Bad. ", 9.0)]).dump(recording)
    other = tmp_path / "weir.yaml"
    other.write_text("hooks: [{path: probe, args: {threshold: 1, probe: other}}]")
    ended = replay(recording, "--config", other)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "has no probe other; it has harm" in ended.stderr
    other.write_text("hooks: [{path: probe, args: {threshold: 1}}]")
    assert "client | One. \n" in replay(recording, "--config", other).stdout


def scored(tokens: list[tuple[str, float]]) -> Recording:
    """A recording whose tokens have scores of a probe `harm`."""
    probes = PromptScores((ProbeInfo(name="harm", kind="linear", labels=("harm",)),), ((0.0,),))
    deltas = [
        Delta(text=text, tokens=(Token(i, text, text.encode(), scores=(score,)),), prompt_scores=probes)
        for i, (text, score) in enumerate(tokens)
    ]
    return Recording(
        request_for(), tuple(TimedDelta(0.0, one) for one in [*deltas, Delta(finish_reason="stop")])
    )


def test_a_changed_or_refused_prompt_is_shown(recording: Path, tmp_path: Path) -> None:
    recording.write_text(recording.read_text().replace("your e-mail address", "zoe@millrace.initech.com"))
    rewritten = replay(recording, "--hook", "examples/private_prompt.py:PrivatePrompt")
    assert "  the model would be asked: 'What is [e-mail]?'\n" in rewritten.stdout
    assert replay(recording, "--hook", REDACT, "--accept").stdout.count("would be asked") == 0
    (tmp_path / "weir.yaml").write_text("hooks: [{path: pii, args: {prompt: refuse}}]")
    refused = replay(recording, "--config", tmp_path / "weir.yaml")
    assert refused.returncode == 1
    assert "  failed: The prompt was refused: EMAIL_ADDRESS\n" in refused.stdout
    assert "  + failed: The prompt was refused: EMAIL_ADDRESS\n" in refused.stdout


def test_a_recording_that_was_cut_short_is_marked(recording: Path) -> None:
    lines = recording.read_text().splitlines()
    recording.write_text("\n".join(lines[:4]))
    assert "output 0 ended: cut short; 3 of 3 tokens" in replay(recording).stdout


def test_speed_1_is_as_fast_as_recorded(recording: Path) -> None:
    made = Recording.load(recording)
    *earlier, last = made.deltas
    replace(made, deltas=(*earlier, replace(last, t=1.5))).dump(recording)
    started = time.monotonic()
    with pytest.raises(
        SystemExit, match="0"
    ):  # in this process, because the start of another may take as long
        main(["replay", str(recording), "--speed", "1"])
    assert time.monotonic() - started > 1.5


def test_ctrl_c_ends_the_command(recording: Path) -> None:
    made = Recording.load(recording)
    *earlier, last = made.deltas
    slow = recording.with_name("slow.jsonl")
    replace(made, deltas=(*earlier, replace(last, t=600.0))).dump(slow)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with killed_at_end(PipedWeir("replay", recording, slow, "--speed", "1", env=environment)) as process:
        assert str(recording) in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert (process.returncode, told) == (130, "weir: interrupted\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{}", ", line 1: not a recording of version 1"),
        ("", ", line 1: no request"),
        ("[" * 100_000, ", line 1: "),
        ('{"turns": 1}', ", line 1: not a recording of version 1"),
        (None, ": there is no such file or folder\n"),
    ],
    ids=["another version", "empty", "deep", "no conversation either", "missing"],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "x.jsonl"
    if content is not None:
        path.write_text(content)
    ended = replay(path)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"weir replay: {path}{reason}")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("content", ["[]", "{", '{"version": 1}'])
def test_a_result_that_cannot_be_read_is_refused(recording: Path, content: str) -> None:
    accepted(recording).write_text(content)
    ended = replay(recording)
    assert ended.returncode == 2
    assert str(accepted(recording)) in ended.stderr


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no configuration file "),
        ("hooks: [{path: a.B, mode: loud}]", "the settings are wrong\n  hooks.0"),
        ("5", "must hold options by name"),
    ],
)
def test_wrong_settings_are_no_change(
    recording: Path, tmp_path: Path, content: str | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "weir.yaml").write_text(content)
    ended = replay(recording, "--config", tmp_path / "weir.yaml")
    assert ended.returncode == 2
    assert ended.stderr.startswith("weir replay: ")
    assert reason in ended.stderr


def test_a_request_without_messages_is_refused(tmp_path: Path) -> None:
    request = {"request_id": "r1", "model": "m", "endpoint": "chat"}
    (tmp_path / "x.jsonl").write_text(json.dumps({"version": 1, "request": request}))
    ended = replay(tmp_path / "x.jsonl")
    assert ended.returncode == 2
    assert "line 1: a request to chat without messages" in ended.stderr


def test_a_hook_that_cannot_be_loaded_is_refused(recording: Path) -> None:
    ended = replay(recording, "--hook", "no.such.Hook")
    assert ended.returncode == 2
    assert "hook 'no.such.Hook' could not be imported" in ended.stderr


def test_a_request_that_names_a_hook_that_is_not_allowed_is_refused(recording: Path) -> None:
    text = recording.read_text().replace('"endpoint":"chat"', '"endpoint":"chat","hooks":["strict"]')
    recording.write_text(text)
    ended = replay(recording)
    assert ended.returncode == 2
    assert "The hook 'strict' is not one that a request may name." in ended.stderr


def test_control_characters_of_a_recording_are_shown_as_signs(recording: Path) -> None:
    recording.write_text(recording.read_text().replace("Our", "\\u001b]52;c;eA\\u0007\\u009b2J"))
    for options in ([], ["--before-hook", REDACT]):
        shown = replay(recording, *options).stdout
        assert "| \u241b]52;c;eA\u2407\ufffd2J e-mail address" in shown
        assert all(c == "\n" or c.isprintable() for c in shown)


def test_only_a_terminal_gets_colours(recording: Path) -> None:
    replay(recording, "--accept")
    assert "\x1b" not in replay(recording, "--hook", UPPER).stdout
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "proxy", "replay", str(recording), "--hook", UPPER]
    with open(theirs, "w") as terminal, open(ours, "rb", buffering=0) as screen:
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        subprocess.run(command, cwd=ROOT, stdout=terminal, env=environment, check=False)
        shown = screen.read(65536).decode()
    assert "\x1b[31m  - | Our e-mail address" in shown
    assert "\x1b[32m  + | OUR E-MAIL ADDRESS" in shown
