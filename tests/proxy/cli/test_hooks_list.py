"""`weir hooks list` names the guards that ship, for people and as JSON."""

import json

import pytest

from hooks.loading.loader import SHORT_NAMES
from proxy.cli.cli import main


def test_every_guard_is_listed_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    main(["hooks", "list"])
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line and line.split()[0] in SHORT_NAMES} == set(SHORT_NAMES)
    assert "    phrases: list[str] = []" in lines
    assert "    url: str" in lines
    assert (
        lines.count("    action: 'redact' | 'suppress' | 'terminate' | 'rewind' | 'suspect' = 'redact'") == 1
    )


def test_the_list_is_also_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["hooks", "list", "--json"])
    listed = json.loads(capsys.readouterr().out)
    guards = {guard["name"]: guard for guard in listed["guards"]}
    assert {name: guard["path"] for name, guard in guards.items()} == SHORT_NAMES
    assert guards["patterns"]["arguments"][0] == {
        "name": "patterns",
        "type": "dict[str, str] | list[str]",
        "is_required": True,
        "default": None,
    }
    assert "action" in [argument["name"] for argument in listed["common_arguments"]]
