"""A token's logits do not depend on what is computed beside it, to the last bit: by kernels in C, for each
instruction set that this machine has."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedConfig, Qwen2Config, Qwen3Config

from engine.device.kernels.cpu import native_library
from engine.device.layout import TokenSpan
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from tests.engine.device.decoders import SIZES, prompts_of, save
from tests.engine.device.kernels.cpu.builds import BUILDS, library_of

LENGTH = 200
"""Tokens of the text: several tiles of keys, of each instruction set."""
WINDOWS: dict[str, Any] = {
    "layer_types": ["full_attention", "sliding_attention"],
    "sliding_window": 70,
    "use_sliding_window": True,
}
GROUPS = {"num_attention_heads": 6, "num_key_value_heads": 2}
MODELS: dict[str, tuple[PreTrainedConfig, dict[str, Any]]] = {
    "groups": (Qwen3Config(**SIZES | GROUPS | {"head_dim": 64}), {}),
    "windows": (Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}, **WINDOWS), {}),
    "int8": (Qwen3Config(**SIZES | {"head_dim": 128}), {"quantization": "int8"}),
    "int4": (Qwen3Config(**SIZES | {"head_dim": 32, "num_key_value_heads": 4}), {"quantization": "int4"}),
}
(TEXT,) = prompts_of(LENGTH)


class Text:
    """One text in a model's cache, and its logits when it is computed alone, in one step."""

    def __init__(self, name: str, build: tuple[str, str], folder: Path) -> None:
        config, options = MODELS[name]
        save(config, folder)
        library = library_of(*build)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native_library, "load", lambda _: library)
            self._runner = ModelRunner.load(
                EngineConfig(
                    model=str(folder),
                    model_impl="weir",
                    cpu_kernels="native",
                    dtype=build[0],
                    num_threads=1,
                    max_num_seqs=8,
                    **options,
                )
            )
        size = self._runner.kv_cache.block_size
        blocks = torch.randperm(self._runner.kv_cache.num_blocks, generator=torch.manual_seed(4)).tolist()
        width = -(-LENGTH // size)
        self._tables = [blocks[i : i + width] for i in range(0, 6 * width, width)]
        self.alone = self.computed([LENGTH], [[]])

    def computed(self, ends: list[int], company: list[list[tuple[int, int]]]) -> Tensor:
        """The logits of all tokens, `[LENGTH, vocab]`, if a step computes those up to the next of `ends`.
        Beside each step, other texts compute some tokens, from a position on."""
        found: list[Tensor] = []
        for start, end, others in zip([0, *ends], ends, company, strict=False):
            spans = [
                TokenSpan(at, TEXT[:number], self._tables[1 + i], num_samples=1)
                for i, (at, number) in enumerate(others)
            ]
            own = TokenSpan(start, TEXT[start:end], self._tables[0], 0, range(start, end))
            _, logits = self._runner.run([*spans[::2], own, *spans[1::2]])
            found.append(logits)
        return torch.cat(found)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes a `Text` at the first call for a model and a build."""

    @cache
    def make(name: str, build: tuple[str, str]) -> Text:
        return Text(name, build, tmp_path_factory.mktemp("model"))

    return make


SPAN = st.integers(0, LENGTH - 40).flatmap(
    lambda at: st.tuples(st.just(at), st.sampled_from([1, 1, 3, 9, 40]))
)
STEP = st.tuples(st.sampled_from([1, 1, 2, 5, 8, 9, 17, 64, LENGTH]), st.lists(SPAN, max_size=5))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("build", BUILDS)
@settings(max_examples=15)
@given(steps=st.lists(STEP, max_size=12))
def test_a_token_has_its_logits_however_its_text_is_cut_and_whatever_is_beside_it(
    text: Any, build: tuple[str, str], name: str, steps: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    """A hit in the prefix cache is such a cut, too: its first tokens were computed in earlier steps."""
    one: Text = text(name, build)
    ends, company = [0], []
    for number, others in [*steps, (LENGTH, [(5, 1), (150, 9)])]:
        if ends[-1] < LENGTH:
            ends.append(min(LENGTH, ends[-1] + number))
            company.append(others)
    assert torch.equal(one.computed(ends[1:], company), one.alone)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("build", BUILDS)
def test_every_cut_gives_the_logits_of_the_whole(text: Any, build: tuple[str, str], name: str) -> None:
    one: Text = text(name, build)
    for cut in range(1, LENGTH, 7):
        assert torch.equal(one.computed([cut, LENGTH], [[], []]), one.alone), cut
    token_by_token = one.computed([*range(1, LENGTH + 1)], [[]] * LENGTH)
    assert torch.equal(token_by_token, one.alone)
