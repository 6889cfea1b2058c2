"""The memory of the host."""

import pytest

from engine.device import cgroup
from engine.device.memory import free_host_memory


def test_free_memory_is_at_most_the_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "free_memory", lambda: None)
    assert free_host_memory() > 2**27
    monkeypatch.setattr(cgroup, "free_memory", lambda: 12345)
    assert free_host_memory() == 12345
