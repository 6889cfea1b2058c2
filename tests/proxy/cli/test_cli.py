"""The command as a shell runs it."""

import subprocess
import sys

import pytest

from proxy.cli.cli import main
from tests.processes import WAIT_LIMIT, killed_at_end


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`weir hooks list | head -1`: the pipe closes while the command writes."""
    command = [sys.executable, "-P", "-m", "proxy", "hooks", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with killed_at_end(process):
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(WAIT_LIMIT) == 0


def test_an_interrupt_while_the_command_is_imported_is_told_in_a_line() -> None:
    code = """
import sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == "proxy.settings.serve":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
import proxy.__main__
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "weir: interrupted\n")


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


def test_a_removed_command_names_what_to_use_instead(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "--concurrency", "8"])
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "guidellm" in line
    assert "vllm bench serve" in line
