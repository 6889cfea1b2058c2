"""The command as a shell runs it."""

import subprocess
import sys

import pytest

from proxy.commands.cli import main


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`weir hooks list | head -1`: the pipe closes while the command writes."""
    command = [sys.executable, "-P", "-m", "proxy", "hooks", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("command", [["chat"], ["shadow", "report"]])
@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://[::1", "http://127.0.0.1:99999", "127.0.0.1:x"]
)
def test_an_address_that_is_none_is_told_as_the_options_fault(
    command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([*command, "--url", url])
    assert left.value.code == 2
    assert "argument --url: " in capsys.readouterr().err
