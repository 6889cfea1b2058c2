"""A guard whose extra is not installed says which one to install."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


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


def test_the_pages_list_the_guards_that_need_no_extra() -> None:
    libraries = "ahocorasick numpy phonenumbers presidio_analyzer regex tokenizers torch transformers"
    code = (
        f"import importlib, sys; sys.modules.update(dict.fromkeys({libraries.split()}))\n"
        "from hooks.loading.loader import SHORT_NAMES\n"
        "for name, path in SHORT_NAMES.items():\n"
        "    try: importlib.import_module(path.rpartition('.')[0])\n"
        "    except ImportError: continue\n"
        "    print(name)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    without_a_model = {*ended.stdout.split()} - {"judge", "probe"}
    for page in ("README.md", "docs/installation.md"):
        row = re.search(r"^\| none \|.*the guards ([^;|]*)", (ROOT / page).read_text(), re.MULTILINE)
        assert row is not None
        assert {*re.findall(r"`(\w+)`", row[1])} == without_a_model
