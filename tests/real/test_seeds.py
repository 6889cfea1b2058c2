"""One seed gives the same words whatever runs beside it: by SmolLM2-135M, or another model.

WEIR_REAL_MODEL=FOLDER python -m pytest -m slow tests/real/test_seeds.py
"""

import os

import pytest

from tests.seeds import differing, one_by_one, requests_about, together
from tests.serving import serving
from tests.weir import ROOT

NUMBER = int(os.environ.get("WEIR_SEED_REQUESTS", "20"))
REQUESTS = requests_about((ROOT / "docs/engines.md").read_text(), NUMBER, 200, 40)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest) -> str:
    return os.environ.get("WEIR_REAL_MODEL") or str(request.getfixturevalue("smollm2"))


async def test_a_seed_gives_the_same_words_in_any_company(model: str) -> None:
    common = ("--model", model, "--served-model-name", "real", "--max-model-len", "2048")
    with serving(*common, "--no-enable-prefix-caching") as url:
        alone = await one_by_one(url, "real", REQUESTS)
        found = {"cache off": await together(url, "real", REQUESTS)}
    for name, options in {
        "cache on": [],
        "drafts": ["--num-speculative-tokens", "4"],
        "drafts, cache off": ["--num-speculative-tokens", "4", "--no-enable-prefix-caching"],
        "pieces": ["--max-num-batched-tokens", "40"],
    }.items():
        with serving(*common, *options) as url:
            found[name] = await together(url, "real", REQUESTS)
    assert {name: differing(got, alone) for name, got in found.items()} == {name: [] for name in found}
