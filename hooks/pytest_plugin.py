"""The pytest plugin: fixtures to test hooks with. Nothing of the kit is imported until a test uses one."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hooks.testing import Recording, Released


@pytest.fixture
def weir_stream(request: pytest.FixtureRequest) -> "Callable[..., Recording]":
    """`hooks.testing.stream_of`: a stream of a text, of tokens, or of a recording, whose `Path` is looked for
    from the test's own folder."""

    def stream(source: Any, **options: Any) -> "Recording":
        from hooks.testing import stream_of

        return stream_of(request.path.parent / source if isinstance(source, Path) else source, **options)

    return stream


@pytest.fixture
def weir_play(weir_stream: "Callable[..., Recording]") -> "Callable[..., Released]":
    """`hooks.testing.play`: what a client would have got of such a stream, with these hooks."""

    def play(hooks: Any, source: Any, **options: Any) -> "Released":
        from hooks import testing

        return testing.play(hooks, weir_stream(source), **options)

    return play
