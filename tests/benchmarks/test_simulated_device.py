"""The simulated device takes its time, and the host waits for it only where it reads."""

import pytest
import torch

from benchmarks.simulated_device.device import LAUNCH_SECONDS, SimulatedDevice, milliseconds
from benchmarks.simulated_device.engine import Load, measure_load
from engine.device.transfers import HostCopy


class Clock:
    """Passes only when the host waits or works."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds

    work = wait


@pytest.mark.parametrize(("rows", "ms"), [(1, 4.0), (16, 4.5), (40, 5.75), (64, 7.0), (96, 8.0), (306, 13.0)])
def test_a_step_takes_the_time_of_the_table(rows: int, ms: float) -> None:
    assert milliseconds(rows) == pytest.approx(ms)


def test_the_host_waits_where_it_reads_and_the_device_works_in_order() -> None:
    device = SimulatedDevice(clock := Clock())  # type: ignore[arg-type]
    with device.serving_copies():
        device.replay(16)
        first = HostCopy([torch.tensor([1.0])])
        device.replay(16)
        second = HostCopy([torch.tensor([2.0])])
        assert clock.seconds == 0
        assert first.tensors()[0].item() == 1.0
        assert clock.seconds == pytest.approx(0.0045)
        second.tensors()
        assert clock.seconds == pytest.approx(0.009)
    assert device.busy_seconds == pytest.approx(0.009)
    assert (device.num_steps, device.num_replays, device.num_ahead) == (2, 2, 1)


def test_the_host_does_not_wait_for_another_stream() -> None:
    device = SimulatedDevice(clock := Clock())  # type: ignore[arg-type]
    with device.serving_copies():
        device.replay(256)
        with device.stream("guards"):
            device.replay(16)
            HostCopy([torch.tensor([1.0])]).tensors()
        assert clock.seconds == pytest.approx(0.0045)


def test_a_step_that_no_graph_covers_keeps_the_host_busy() -> None:
    device = SimulatedDevice(clock := Clock())  # type: ignore[arg-type]
    with device.serving_copies():
        device.launch(1, 100)
        assert clock.seconds == LAUNCH_SECONDS
        HostCopy([torch.tensor([1.0])]).tensors()
    assert clock.seconds == pytest.approx(0.004 + 100 / 50 / 1e3)


def test_the_engine_keeps_the_device_busy_with_requests_that_follow_each_other() -> None:
    figures = measure_load(Load(2, 30, 10), 0.3).as_json()
    assert set(figures) == {"graph", "ahead", "busy", "tokens"}
    assert 0 < figures["busy"] <= 100
    assert 0 < figures["ahead"] <= 100
    assert 100 < figures["tokens"] <= 500
