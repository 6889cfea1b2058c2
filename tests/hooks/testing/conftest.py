"""Checks that the kit itself runs in both modes are not run in both again."""

import pytest


@pytest.fixture(autouse=True)
def mode() -> str:
    return "by itself"
