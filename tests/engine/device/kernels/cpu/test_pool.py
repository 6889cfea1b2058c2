"""The threads that share the loops of the kernels in C."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest
import torch

from engine.device.kernels.cpu import native_library
from engine.device.kernels.cpu.native_linear import NativeLinear
from tests.processes import WAIT_LIMIT

NUM_CALLERS, NUM_LOOPS = 4, 300


@pytest.fixture
def linear() -> Iterator[NativeLinear]:
    library = native_library.load(torch.float32)
    assert library is not None
    torch.manual_seed(0)
    before = torch.get_num_threads()
    yield NativeLinear(library, torch.randn(1000, 300))
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_threads", [2, 3, 16])
def test_threads_of_any_number_and_callers_side_by_side_compute_the_same(
    linear: NativeLinear, num_threads: int
) -> None:
    x = torch.randn(NUM_CALLERS, 5, 300)
    torch.set_num_threads(1)
    expected = [linear(rows) for rows in x]
    equal: list[bool] = []

    def compute(caller: int) -> None:
        for i in range(NUM_LOOPS):
            torch.set_num_threads(1 + (i + caller) % num_threads)  # of this thread
            equal.append(torch.equal(linear(x[caller]), expected[caller]))

    callers = [threading.Thread(target=compute, args=(i,), daemon=True) for i in range(NUM_CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(WAIT_LIMIT)
    assert len(equal) == NUM_CALLERS * NUM_LOOPS
    assert all(equal)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the states of threads from /proc")
@pytest.mark.slow
def test_threads_sleep_after_a_loop_and_a_forked_process_has_its_own() -> None:
    script = """
        import os, time, torch
        from pathlib import Path
        from engine.device.kernels.cpu import native_library
        from engine.device.kernels.cpu.native_linear import NativeLinear

        def states():
            stats = [path.read_text() for path in Path("/proc/self/task").glob("*/stat")]
            return [stat.rpartition(")")[2].split()[0] for stat in stats]

        torch.set_num_threads(1)
        linear = NativeLinear(native_library.load(torch.float32), torch.ones(1000, 300))
        x = torch.ones(5, 300)
        expected, num_alone = linear(x), len(states())
        torch.set_num_threads(4)
        assert torch.equal(linear(x), expected)
        assert len(states()) == num_alone + 3
        limit = time.monotonic() + 20
        while states().count("R") > 1:  # the one that asks
            assert time.monotonic() < limit
        child = os.fork()
        assert torch.equal(linear(x), expected)
        assert len(states()) >= 4
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], check=True, timeout=60)
