"""Which paths name a class, and what is said of the others."""

import sys
from pathlib import Path

import pytest

from engine.protocol.import_path import ImportPathError, describe, find_class


def test_a_module_and_a_class_are_divided_by_a_dot_or_a_colon() -> None:
    assert find_class("pathlib.Path") is find_class("pathlib:Path") is Path


def test_classes_of_one_file_share_its_module(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text("class A: pass\nclass B(A): pass\n")
    a, b = (find_class(f"{tmp_path}/two.py:{name}") for name in "AB")
    assert issubclass(b, a)


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "at_home.py").write_text("class A: pass\n")
    assert find_class("~/at_home.py:A") is find_class(f"{tmp_path}/at_home.py:A")


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
        ("pathlib.path", "has no class 'path'; did you mean 'Path'?"),
        ("no_such_module.A", "could not be imported: ModuleNotFoundError: No module named 'no_such_module'$"),
        (
            "engine.protocol.import_pth.A",
            "No module named 'engine.protocol.import_pth'; did you mean 'import_path'?",
        ),
        ("jsn.JSONDecoder", "No module named 'jsn'; did you mean 'json'?"),
        ("no/such/file.py:A", "does not exist: no file"),
        ("examples/uper_case.py:UpperCase", "uper_case.py; did you mean 'upper_case.py'?"),
    ],
)
def test_the_error_says_what_is_wrong_with_the_path(path: str, reason: str) -> None:
    with pytest.raises(ImportPathError, match=reason.replace("?", "[?]")):
        find_class(path)


def test_a_file_that_cannot_be_run_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise SystemExit(3)")
    with pytest.raises(ImportPathError, match="could not be imported: SystemExit: 3"):
        find_class(f"{file}:A")
    file.write_text("class A: pass")
    assert find_class(f"{file}:A").__name__ == "A"


def test_an_error_is_described_with_its_line_and_its_causes(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("try:\n    int('x')\nexcept ValueError as e:\n    raise KeyError('a') from e\n")
    with pytest.raises(ImportPathError) as caught:
        find_class(f"{file}:A")
    assert str(caught.value) == (
        f"could not be imported: KeyError: 'a' ({file}:4), "
        f"caused by ValueError: invalid literal for int() with base 10: 'x' ({file}:2)"
    )


def test_the_line_is_of_the_deployments_own_code(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import json\n\njson.loads('[')\n")
    with pytest.raises(ImportPathError, match=f"{file}:3"):
        find_class(f"{file}:A")


def test_an_error_without_a_message_is_described_by_its_type() -> None:
    assert describe(ValueError()) == "ValueError"


def test_a_file_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "changing.py"
    file.write_text("class A: number = 1")
    first = find_class(f"{file}:A")
    file.write_text("class A: number = 2")
    second = find_class(f"{file}:A")
    assert (first.number, second.number) == (1, 2)  # type: ignore[attr-defined]
    assert find_class(f"{file}:A") is second


def test_a_path_that_stops_at_a_file_or_a_module_is_told_the_classes_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    package = tmp_path / "acme_2"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "guards.py").write_text(
        "from pathlib import Path\nclass A: pass\nclass B: pass\nclass _C: pass\n"
    )
    (package / "none.py").write_text("")
    for path, reason in (
        (
            "acme_2/guards.py",
            "names a file, and no class of it: write acme_2/guards.py:A or acme_2/guards.py:B",
        ),
        ("acme_2.guards", "names a module, and no class of it: write acme_2.guards.A or acme_2.guards.B"),
        ("acme_2/none.py", "names a file, and no class of it, and has none"),
        ("acme_2.guards.Guard", "is not there: acme_2.guards has no class 'Guard'; it has A, B"),
        ("acme_2/nix.py", f"does not exist: no file {package}/nix.py"),
    ):
        with pytest.raises(ImportPathError) as raised:
            find_class(path)
        assert str(raised.value) == reason
