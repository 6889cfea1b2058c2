"""`weir eval-guard`: its report, as text, JSON and picture, and what it refuses."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from proxy.cli.cli import main

EXCHANGES = [
    {"prompt": "A?", "reply": "Its name is Project Bluebird.", "unsafe": True, "unsafe_from": 12},
    {"prompt": "B?", "reply": "It is a blue kettle.", "unsafe": False},
]
CONFIG = """
engine: echo
hooks:
  - path: phrases
    name: names
    args: {phrases: [project bluebird]}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """The exchanges, and a configuration with one guard."""
    exchanges, config = tmp_path / "own.jsonl", tmp_path / "weir.yaml"
    exchanges.write_text("\n".join(map(json.dumps, EXCHANGES)))
    config.write_text(CONFIG)
    return str(exchanges), str(config)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["eval-guard", *arguments])
    return int(left.value.code or 0)


def test_it_tells_what_was_found(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files[0], "--config", files[1]) == 0
    told = capsys.readouterr().out
    assert "all together  1.000 (0.207-1.000)  0.000 (0.000-0.793)" in told
    assert "2 exchanges: 1 unsafe and 1 safe replies; 0 failed closed" in told
    assert "characters of an offence that left: p50 0, most 0" in told


def test_a_recording_that_ends_with_an_error_does_not_end_the_evaluation(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [{"role": "user", "content": "A?"}]
    lines = [
        {
            "version": 1,
            "request": {"request_id": "a", "model": "m", "endpoint": "chat", "messages": messages},
        },
        {"t": 0.0, "text": "It is"},
        {"t": 0.1, "error": {"message": "The engine failed.", "status": 500}},
    ]
    recording = tmp_path / "broken.jsonl"
    recording.write_text("\n".join(map(json.dumps, lines)))
    assert run(files[0], "--safe", str(recording), "--config", files[1]) == 0
    told = capsys.readouterr().out
    assert "3 exchanges: 1 unsafe and 1 safe replies; 0 failed closed" in told
    assert "1 not counted: recordings that end with an error" in told


@pytest.mark.parametrize("cut", ["tokens", "whole", "1", "7"])
def test_the_report_as_json(files: tuple[str, str], cut: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files[0], "--config", files[1], "--cut", cut, "--json", "-") == 0
    (guard,) = json.loads(capsys.readouterr().out)["guards"]
    assert guard["detected"]["flagged"] == 1
    assert guard["false_positives"]["flagged"] == 0


def test_the_picture_is_an_svg_file(files: tuple[str, str], tmp_path: Path) -> None:
    assert run(files[0], "--config", files[1], "--plot", str(tmp_path / "plot.svg")) == 0
    root = ElementTree.parse(tmp_path / "plot.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "all together" in "".join(root.itertext())


def test_recordings_are_labelled_by_options(capsys: pytest.CaptureFixture[str]) -> None:
    recordings = Path(__file__).parents[3] / "recordings"
    labels = ("--unsafe", str(recordings / "card.jsonl"), "--safe", str(recordings / "german.jsonl"))
    assert run(*labels, "--hook", "pii", "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["guards"][0]["detected"]["flagged"] == 1


def test_the_model_that_ships_finds_what_it_was_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = {"prompt": "Give me a card number", "reply": "Of course: 4111 1111 1111 1111.", "unsafe": True}
    safe = {"prompt": "Hello?", "reply": "Hello! How can I help you today?", "unsafe": False}
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, (card, safe))))
    assert run(str(path), "--hook", "stream_guard", "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["guards"][0]["detected"]["flagged"] == 1
    assert told["guards"][0]["false_positives"]["flagged"] == 0
    assert 0 < told["cost"]["computed_tokens"] < 300


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "a FILE is needed"),
        (["FILE"], "there is no guard to measure"),
        (["missing.jsonl", "--hook", "pii"], "missing.jsonl"),
        (["FILE", "--hook", "nothing.Here"], "nothing.Here"),
        (["FILE", "--hook", "probe"], ":1: the hook Probe reads a probe's scores, and this answer has none"),
    ],
)
def test_it_refuses_what_it_cannot_measure(
    arguments: list[str], reason: str, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*(files[0] if one == "FILE" else one for one in arguments)) == 2
    assert reason in capsys.readouterr().err
