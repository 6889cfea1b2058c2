"""A configuration that cannot be built leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from hooks.loading.loader import HookLoadError
from proxy.deployment.build import build
from proxy.deployment.checks.settings import check
from proxy.settings.serve import ServeSettings
from proxy.workers.run import running

HOOK = """
from pathlib import Path

class Notes:
    def __call__(self, chunk):
        raise AssertionError("never")

    async def close(self):
        Path(__file__).with_name("closed").touch()
"""


@pytest.fixture
def notes(tmp_path: Path) -> str:
    (tmp_path / "notes.py").write_text(HOOK)
    return f"{tmp_path}/notes.py:Notes"


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"policies": {"b": {"hooks": ["nowhere.py:Guard"]}}}, HookLoadError),
        ({"models": {"m": {"engine": "local", "model": "./nowhere"}}}, ValueError),
    ],
    ids=["a hook of another policy", "an engine"],
)
async def test_hooks_are_closed_if_something_else_cannot_be_built(
    notes: str, tmp_path: Path, more: dict[str, Any], error: type[Exception]
) -> None:  # contract 1.7
    policies = {"a": {"hooks": [notes]}, **more.pop("policies", {})}
    settings = ServeSettings(
        **{"models": {"m": {"engine": "echo"}}, "default_policy": "a", **more}, policies=policies
    )
    with pytest.raises(error, match="nowhere"):
        await build(settings)
    assert (tmp_path / "closed").exists()


async def test_hooks_are_closed_if_the_server_cannot_be_made(
    notes: str, tmp_path: Path
) -> None:  # contract 1.7
    settings = ServeSettings(engine="echo", hooks=[notes], port=0, ssl_certfile=tmp_path / "nowhere.pem")
    with pytest.raises(ValueError, match="ssl_certfile"):
        async with running(settings):
            pass
    assert (tmp_path / "closed").exists()


def test_a_check_of_the_settings_closes_the_hooks_that_it_builds(notes: str, tmp_path: Path) -> None:
    assert check({"engine": "echo", "hooks": [notes]}) == []
    assert (tmp_path / "closed").exists()


ECHO = {"engine": "echo"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"models": {"a": {**ECHO, "aliases": ["x"]}}}, "a"),
        ({"models": {"a": ECHO, "b": ECHO}}, "a and b"),
        ({"models": {"a": ECHO, "b": ECHO, "c": ECHO}}, "a and 2 more"),
        ({"engine": "echo", "served_model_name": ["a", "b"]}, "a"),
        ({"engine": "openai", "upstream": ["http://127.0.0.1:9"]}, ""),
    ],
    ids=str,
)
async def test_the_models_are_named_in_words(settings: dict[str, Any], words: str) -> None:
    assert (await build(ServeSettings(**settings))).names_in_words == words
