"""The whole contract is tested twice: with the hooks in this process, and behind a worker's channel."""

from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test

from tests import helpers

_HERE = Path(__file__).parent
_MADE_OF_THE_PIPELINE = [_HERE / name for name in ("builtin", "detect", "json")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests behind a worker's channel take long. Those in `pipeline` show that the channel changes nothing.
    What is made of the pipeline need not show it again; neither need any test of many examples elsewhere."""
    for item in items:
        assert isinstance(item, pytest.Function)
        is_worker = hasattr(item, "callspec") and item.callspec.params.get("mode") == "worker"
        if not is_worker or _HERE / "pipeline" in item.path.parents:
            continue
        is_made = any(folder in item.path.parents for folder in _MADE_OF_THE_PIPELINE)
        if is_made or is_hypothesis_test(item.obj):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, params=["in-process", "worker"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(helpers, "mode", request.param)
    return str(request.param)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is killed for being slow: this machine may be."""
    monkeypatch.setattr("hooks.workers.pool.GRACE", 600.0)
    monkeypatch.setattr("hooks.workers.process.GRACE", 600.0)
