"""One seed gives the same words whatever runs beside it: contract 7.4, by the small model that ships."""

from collections.abc import Callable

import pytest

from tests.seeds import differing, one_by_one, requests_about, together
from tests.weir import ROOT

REQUESTS = requests_about((ROOT / "README.md").read_text(), 12, 60, 24)


@pytest.mark.parametrize(
    "options",
    [[], ["--no-enable-prefix-caching", "--max-num-batched-tokens", "24"], ["--num-speculative-tokens", "4"]],
    ids=" ".join,
)
async def test_a_seed_gives_the_same_words_in_any_company(
    weir_serve: Callable[..., str], options: list[str]
) -> None:
    alone = await one_by_one(weir_serve("--no-enable-prefix-caching"), "weir-demo", REQUESTS)
    assert len(set(alone)) > len(alone) / 2  # the answers are no constants
    assert not differing(await together(weir_serve(*options), "weir-demo", REQUESTS), alone)
