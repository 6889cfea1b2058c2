"""What the kit itself runs in both modes is not run in both again."""

import pytest


@pytest.fixture(autouse=True)
def mode() -> str:
    return "by itself"
