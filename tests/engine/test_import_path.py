"""Which paths name a class, and what is said of the others."""

import sys
from pathlib import Path

import pytest

from engine.import_path import ImportPathError, find_class


def test_a_module_and_a_class_are_divided_by_a_dot_or_a_colon() -> None:
    assert find_class("pathlib.Path") is find_class("pathlib:Path") is Path


def test_classes_of_one_file_share_its_module(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text("class A: pass\nclass B(A): pass\n")
    a, b = (find_class(f"{tmp_path}/two.py:{name}") for name in "AB")
    assert issubclass(b, a)


def test_the_working_folder_is_searched_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("JSONDecoder = int")
    (tmp_path / "only_here_1.py").write_text("class A: pass")
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert find_class("json.JSONDecoder") is not int
    assert find_class("only_here_1.A").__name__ == "A"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("Path", "names no class; write pkg"),
        ("pathlib:Pa th", "names no class; write pkg"),
        ("pathlib.NoSuchClass", "is not there: pathlib has no class 'NoSuchClass'"),
        ("pathlib.sys", "has no class 'sys'"),
        ("no_such_module.A", "could not be imported: ModuleNotFoundError"),
        ("no/such/file.py:A", "is not there: there is no file"),
    ],
)
def test_the_error_says_what_is_wrong_with_the_path(path: str, reason: str) -> None:
    with pytest.raises(ImportPathError, match=reason):
        find_class(path)


def test_a_file_that_cannot_be_run_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise SystemExit(3)")
    with pytest.raises(ImportPathError, match="could not be imported: SystemExit: 3"):
        find_class(f"{file}:A")
    file.write_text("class A: pass")
    assert find_class(f"{file}:A").__name__ == "A"
