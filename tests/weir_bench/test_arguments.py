"""Options that make no sense are refused, with a reason."""

import pytest

from proxy.cli.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--concurrency 0", "'0' is not a whole number from 1 on"),
        ("--concurrency 1,x", "'x' is not a whole number from 1 on"),
        ("--rate -1 --duration 1", "'-1' is not a number above 0, or inf"),
        ("--rate nan --duration 1", "'nan' is not a number above 0, or inf"),
        ("--duration inf", "'inf' is not a number above 0"),
        ("--url localhost:8000", "'localhost:8000' is no http or https URL"),
        ("--target weir", "'weir' is not NAME=URL or NAME=URL,MODEL"),
        ("--target a=http://a --target a=http://b", "two targets are called 'a'"),
        ("--goodput ttft", "'' is not a number above 0"),
        ("--goodput speed:3", "'speed:3' is not METRIC:MS with one of ttft, itl"),
        ("--extra []", "'[]' is not a JSON object"),
        ("--extra {", "'{' is not a JSON object"),
        ("--concurrency 1 --rate 2", "give one of them"),
        ("--max-concurrency 3", "--max-concurrency limits an open loop"),
        ("--rate 2", "an open loop needs --num-prompts"),
        ("--rate inf --duration 3", "an open loop needs --num-prompts"),
        ("--dataset-path /nowhere/data.jsonl", "/nowhere/data.jsonl"),
        ("--json /nowhere/out.json", "/nowhere/out.json"),
        ("--endpoint responses", "invalid choice: 'responses'"),
    ],
)
def test_bad_options_are_refused(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["bench", *arguments.split()])
    assert exited.value.code == 2
    assert message in capsys.readouterr().err
