"""The whole contract is tested twice: with the hooks in this process, and behind a worker's channel."""

import pytest

from tests import helpers


@pytest.fixture(autouse=True, params=["in-process", "worker"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(helpers, "mode", request.param)
    return str(request.param)
