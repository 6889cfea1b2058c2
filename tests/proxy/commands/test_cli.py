"""The command as a shell runs it."""

import subprocess
import sys


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`weir hooks list | head -1`: the pipe closes while the command writes."""
    command = [sys.executable, "-P", "-m", "proxy", "hooks", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
