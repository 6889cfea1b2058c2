"""Numbers in settings files: as JSON writes them, too."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings.yaml_file import read_yaml
from tests.helpers import examples


def read(path: Path, text: str) -> object:
    (path / "one.yaml").write_text(text)
    return read_yaml(path / "one.yaml")[0]["value"]


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e-6", 1e-6), ("1E5", 1e5), ("-2.5e+3", -2500.0), ("+1e3", 1e3), ("1e-6 # few", 1e-6)],
)
def test_a_number_may_have_an_exponent_and_no_dot(tmp_path: Path, written: str, value: float) -> None:
    assert read(tmp_path, f"value: {written}") == value


@pytest.mark.parametrize("text", ["1e", "e5", "1e5x", "12e5abc", "1e5/2", "sha256:1e5", "0e1-2"])
def test_a_text_that_begins_like_such_a_number_is_a_text(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f"value: {text}") == text
    assert read(tmp_path, "value: '1e5'") == "1e5"


@examples(100)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_json_is_read_as_json_is(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    assert read(tmp_path_factory.mktemp("json"), json.dumps({"value": value})) == value
