"""The arguments that `weir hooks check` and `weir hooks fuzz` share."""

import pytest

from proxy.cli.cli import main

BANNED = "examples/banned_phrase.py:BannedPhrase"


@pytest.mark.parametrize("command", ["check", "fuzz"])
@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("--args", "[1]", "a JSON object"),
        ("--args", "{", "a JSON object"),
        ("--hook-timeout", "0", "a number above 0"),
        ("--hook-load-timeout", "nan", "a number above 0"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    capsys: pytest.CaptureFixture[str], command: str, option: str, value: str, wanted: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["hooks", command, BANNED, option, value])
    assert f"argument {option}: '{value}' is not {wanted}" in capsys.readouterr().err
