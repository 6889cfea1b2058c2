"""Misspelt names and the names that are offered for them."""

import pytest

from engine.protocol.did_you_mean import did_you_mean, nearest


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hook_timeot", "hook_timeout"),
        ("hook-timeout", "hook_timeout"),
        ("PII", "pii"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("zebra", None),
        ("", None),
        ("pi", "pii"),
        ("ii", "pii"),
        ("h", None),
    ],
)
def test_the_nearest_name_is_offered(name: str, meant: str | None) -> None:
    known = ["hook_timeout", "host", "pii", "Qwen/Qwen3-8B"]
    assert nearest(name, known) == meant


def test_a_part_of_several_names_means_none_of_them() -> None:
    assert nearest("qwen", ["Qwen/Qwen3-8B-Instruct", "Qwen/Qwen3-32B-Instruct"]) is None


def test_a_long_name_is_compared_with_nothing() -> None:
    assert nearest("a" * 201, ["a" * 201]) is None


def test_the_offer_ends_a_message() -> None:
    assert did_you_mean("prot", ["port"]) == "; did you mean 'port'?"
    assert did_you_mean("prot", []) == ""
