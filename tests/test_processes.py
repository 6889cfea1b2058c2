import subprocess
import sys
import tempfile

import pytest

from tests.processes import WAIT_LIMIT, killed_at_end
from tests.serving import ROOT
from tests.weir import ForkedWeir

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
IN_BACKGROUND = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
import tests.conftest
child = "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
sys.exit(subprocess.run([sys.executable, "-c", child]).returncode)
"""


def test_processes_of_tests_obey_ctrl_c_where_the_tests_are_a_background_job() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IN_BACKGROUND], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_LIMIT
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_process_that_does_not_end_is_killed_where_its_test_fails() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired), killed_at_end(process):
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.wait(0.01)
    assert process.returncode == -9


def test_a_command_that_does_not_end_is_killed_where_its_test_fails() -> None:
    with tempfile.TemporaryFile("w+") as file:
        process = ForkedWeir(["serve", "--engine", "echo", "--port", "0"], file, file, file)
        with pytest.raises(subprocess.TimeoutExpired), killed_at_end(process):
            process.wait(0.01)
        assert process.wait(0.0) == -9
