"""Rounded weights against the same weights in bfloat16: perplexity on public text."""

from pathlib import Path

import pytest

from benchmarks.quantization import of_a_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LENGTH = 256
"""Tokens of each text."""
OWN, INT8, INT4 = "the file's own weights", "int8", "int4, groups of 32"
# Transformers' code runs Gemma, and has no kernels for whole numbers: the engine refuses to round it. The
# rounding itself is tried on its weights, which no grid of 4 bits was made for.
MOST = {"smollm2": {OWN: 1.02, INT8: 1.02, INT4: 1.06}, "gemma3": {OWN: 1.001, INT8: 1.02, INT4: 1.21}}
"""Perplexity, of bfloat16's."""


@pytest.mark.parametrize("name", MOST)
def test_rounding_raises_perplexity_by_little(name: str, request: pytest.FixtureRequest) -> None:
    model: Path = request.getfixturevalue(name)
    found = dict(of_a_file(str(model), LENGTH, names=[INT8, INT4]))
    ratios = {form: found[form] / found["bfloat16"] for form in MOST[name]}
    assert {form: ratio for form, ratio in ratios.items() if ratio > MOST[name][form]} == {}
