"""The pytest plugin: fixtures that test hooks. It imports no package of Weir until a test uses a fixture.

A project may have packages of its own called `hooks` or `engine`. Where they come first on the path, the
plugin says so in pytest's header and in its fixtures' errors, and does nothing else.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hooks.testing import Recording, Released


def pytest_report_header() -> str | None:
    reason = _reason_to_stand_aside()
    return reason and f"weir: the fixtures weir_play and weir_stream are off: {reason}"


@pytest.fixture
def weir_stream(request: pytest.FixtureRequest) -> "Callable[..., Recording]":
    """`hooks.testing.stream_of`: a stream of a text, of tokens, or of a recording. A recording's `Path`
    starts in the test's own folder."""
    if reason := _reason_to_stand_aside():
        pytest.fail(f"weir_stream and weir_play cannot work here: {reason}", pytrace=False)

    def stream(source: Any, **options: Any) -> "Recording":
        from hooks.testing import stream_of

        return stream_of(request.path.parent / source if isinstance(source, Path) else source, **options)

    return stream


@pytest.fixture
def weir_play(weir_stream: "Callable[..., Recording]") -> "Callable[..., Released]":
    """`hooks.testing.play`: what a client would get of such a stream, with these hooks."""

    def play(hooks: Any, source: Any, **options: Any) -> "Released":
        from hooks import testing

        return testing.play(hooks, weir_stream(source), **options)

    return play


def _reason_to_stand_aside() -> str | None:
    """A sentence if `hooks` or `engine` is another project's package here. Imports neither."""
    for name in ("hooks", "engine"):
        found = _file_of(name)
        if found is None or found.resolve() != Path(__file__).resolve().with_name(name) / "__init__.py":
            return (
                f"the package {name!r} is not Weir's here, but {found or 'another one'}, which comes first "
                "on sys.path. Keep tests of hooks in a folder that has no such package, and run them by "
                "`pytest`, not by `python -m pytest`"
            )
    return None


def _file_of(package: str) -> Path | None:
    """The file that `import` runs, or has run, for a package. None: it has no file."""
    if package in sys.modules:
        file = getattr(sys.modules[package], "__file__", None)
    else:
        spec = find_spec(package)
        file = spec and spec.origin
    return Path(file) if file else None
