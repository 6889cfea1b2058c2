"""A guard whose extra is not installed says which one to install."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("library", "guard", "arguments"),
    [
        ("ahocorasick", "phrases", {"phrases": ["a"]}),
        ("phonenumbers", "pii", {}),
        ("regex", "json_schema", {}),
        ("regex", "patterns", {"patterns": {"a": "b"}}),
        ("regex", "pii", {}),
        ("regex", "secrets", {}),
    ],
)
def test_a_guard_without_its_library_names_the_extra(library: str, guard: str, arguments: object) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from hooks.loading.loader import HookSpec, load_hook\n"
        f"load_hook(HookSpec({guard!r}, {arguments!r}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "install the extra 'guards' of weir-proxy" in ended.stderr.splitlines()[-1]
