"""Runs a program as people run it, but alone: in a folder and a home of its own, without the internet, and
with a limit of time."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT = 180.0
"""Seconds that a program has for one prompt."""
NOWHERE = "http://127.0.0.1:9"
"""A proxy that nobody runs. Programs that look for updates there find that the internet is down."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07")


@dataclass(frozen=True, slots=True)
class Ran:
    """`output`: standard output and error, without colours. `returncode`: None if the limit ended it."""

    output: str
    returncode: int | None


def ran(command: Sequence[str | Path], home: Path, folder: Path, env: Mapping[str, str]) -> Ran:
    """Runs the command until it ends. All processes that it started end with it."""
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CI": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE),
        **env,
    }
    with tempfile.TemporaryFile() as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(
            list(command), cwd=folder, env=environment, start_new_session=True, **streams
        )
        returncode: int | None = None
        try:
            returncode = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end_group(process)
        output.seek(0)
        return Ran(_ESCAPES.sub("", output.read().decode(errors="replace")), returncode)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
