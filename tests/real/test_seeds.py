"""One seed gives the same words whatever runs beside it: by SmolLM2-135M, or another model in a folder.

WEIR_REAL_MODEL=FOLDER python -m pytest -m slow tests/real/test_seeds.py
"""

import os
from pathlib import Path

import pytest

from tests.seeds import differing, one_by_one, requests_about, together
from tests.serving import serving
from tests.weir import ROOT

MODEL = os.environ.get("WEIR_REAL_MODEL", "")
REQUESTS = requests_about((ROOT / "docs/engines.md").read_text(), 100, 200, 40)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not Path(MODEL, "config.json").is_file(), reason="WEIR_REAL_MODEL names no model"),
]
COMMON = ("--model", MODEL, "--served-model-name", "real", "--max-model-len", "2048")


async def test_a_seed_gives_the_same_words_in_any_company() -> None:
    with serving(*COMMON, "--no-enable-prefix-caching") as url:
        alone = await one_by_one(url, "real", REQUESTS)
        found = {"cache off": await together(url, "real", REQUESTS)}
    for name, options in {
        "cache on": [],
        "drafts": ["--num-speculative-tokens", "4"],
        "drafts, cache off": ["--num-speculative-tokens", "4", "--no-enable-prefix-caching"],
        "pieces": ["--max-num-batched-tokens", "40"],
    }.items():
        with serving(*COMMON, *options) as url:
            found[name] = await together(url, "real", REQUESTS)
    assert {name: differing(got, alone) for name, got in found.items()} == {name: [] for name in found}
