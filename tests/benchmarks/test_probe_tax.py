"""The engine that the tax of a probe is measured on has scores in turns with the probe, and in no others."""

from pathlib import Path

import pytest

from benchmarks.engine import SHAPES
from benchmarks.guard_models import setups, tax
from benchmarks.guard_models.setups import Setup, guarded
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
        results = await tax.tax(made, 2, rounds=2, max_tokens=8)
        assert {*results} == {"nothing", "again", "probe"}
        assert all(len(gaps.seconds) >= 8 for gaps in results.values())
