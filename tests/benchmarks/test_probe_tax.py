"""The engine that the tax of a probe is measured on has scores in turns with the probe, and in no others.
The tax is told by steps that all streams share.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.guard_models import setups, tax
from benchmarks.guard_models.setups import Setup, StepEnd, guarded
from benchmarks.random_models import SHAPES
from engine.protocol import Deltas, GenerationRequest

TINY = SHAPES["tiny"] | {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 8}


@pytest.fixture(autouse=True)
def tiny_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    monkeypatch.setattr(setups, "CACHE", 2**22)


class Heard:
    """Stands in front of an engine, and notes which tokens came with scores."""

    def __init__(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prompts: list[bool] = []
        self.tokens: list[bool] = []
        generate = setup.engine.generate

        async def heard(request: GenerationRequest) -> Deltas:
            async for delta in generate(request):
                if delta.prompt_token_ids is not None:
                    self.prompts.append(delta.prompt_scores is not None)
                self.tokens += [token.scores is not None for token in delta.tokens]
                yield delta

        monkeypatch.setattr(setup.engine, "generate", heard)


async def test_only_turns_with_the_probe_have_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"again": {}, "probe": {}}
    async with guarded("tiny", tmp_path, ways, dtype="float32", num_threads=1) as made:
        assert len({setup.engine for setup in made.values()}) == 1
        heard = Heard(made["nothing"], monkeypatch)
        for name in ("nothing", "probe", "again", "probe", "nothing"):
            heard.prompts.clear()
            heard.tokens.clear()
            streams = await made[name].answer(["one prompt", "another"], 6)
            is_probed = name == "probe"
            assert heard.prompts == [is_probed] * 2
            assert heard.tokens == [is_probed] * 12
            assert [stream.num_tokens for stream in streams] == [6, 6]


async def test_a_gap_counts_if_all_streams_get_a_token_in_both_steps() -> None:
    made = {"nothing": Steps(seconds=1.0), "probe": Steps(seconds=2.0)}
    results = await tax.tax(cast("dict[str, Setup]", made), 2, rounds=3, max_tokens=8)
    assert {name: gaps.seconds for name, gaps in results.items()} == {
        "nothing": [1.0] * 6,
        "probe": [2.0] * 6,
    }
    assert len(results["nothing"].whole) == 3


def test_a_turn_whose_streams_never_run_together_is_refused() -> None:
    ends = [StepEnd(float(i), 0.0, num_decoding=1) for i in range(8)]
    with pytest.raises(ValueError, match="max-tokens"):
        tax.Gaps().add(ends, num_streams=2, whole=1.0)


class Steps:
    """Stands for a `Setup` whose second stream begins a step after the first and ends a step after it."""

    def __init__(self, seconds: float) -> None:
        self.engine = SimpleNamespace(ends=[])
        self.seconds = seconds

    async def answer(self, prompts: list[str], max_tokens: int) -> None:
        self.engine.ends += [
            StepEnd(i * self.seconds, 0.0, num_decoding) for i, num_decoding in enumerate((1, 2, 2, 2, 1))
        ]
