"""No client gets what a client must not get: each check of the catalogue."""

from pathlib import Path

import pytest

from tools.abuse import checks
from tools.abuse.catalogue import CHECKS


@pytest.mark.parametrize("name", list(CHECKS))
async def test_there_is_no_breach(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SLACK", float("inf"))
    _, check = CHECKS[name]
    await check(tmp_path)
