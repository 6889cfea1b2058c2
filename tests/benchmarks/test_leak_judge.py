"""A run of the leak judge is clean only if it judged every case and found nothing that leaked."""

from typing import Any

import pytest

from benchmarks.leak_judge import is_clean, row

SUMMARY: dict[str, Any] = {
    "seed": "1f",
    "cases_applicable": 32,
    "cases_attempted": 32,
    "inconclusive": 0,
    "leak_single_chunk": 0.0,
    "leak_adversarial": 0.0,
    "delta_frag": 0.0,
    "fidelity_rate": 0.0,
    "request_path_leak": [],
    "outcome": "no-leak-profile-not-met",
    "partial": {"cases_applicable": 32, "cases_inconclusive": 0, "cases_partial_emission": 0},
}


def test_values_that_do_not_come_back_are_no_leak() -> None:
    assert is_clean(SUMMARY)
    assert row(SUMMARY).split() == ["1f", "32/32", "0.0", "0.0", "0.0", "0/32", "0.0", "none"]


@pytest.mark.parametrize(
    "found",
    [
        {"outcome": "fail"},
        {"inconclusive": 1},
        {"partial": SUMMARY["partial"] | {"cases_partial_emission": 1}},
        {"partial": SUMMARY["partial"] | {"cases_inconclusive": 1}},
    ],
)
def test_a_leak_and_a_case_that_was_not_judged_are_not_clean(found: dict[str, Any]) -> None:
    assert not is_clean(SUMMARY | found)
