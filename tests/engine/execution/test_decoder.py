"""Weir's own decoder, against transformers' code on the same weights: in torch's operators and in C."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from engine.config import EngineConfig
from engine.core.scheduler import ScheduledSequence
from engine.core.sequence import SequenceGroup
from engine.execution.kernels.cpu import native_library
from engine.execution.kernels.cpu.native_linear import fast_linear
from engine.execution.kernels.protocol import no_linear
from engine.execution.model_runner import ModelRunner
from engine.execution.models.decoder import Decoder, DecoderConfig
from engine.execution.models.linear import make_linear
from engine.execution.models.transformers_model import TransformersModel
from tests.engine.conftest import SIZES, completion

SIZES = SIZES | {"initializer_range": 0.1}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ALTERNATING = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 10}
FAMILY: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama with biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama without groups": LlamaConfig(**SIZES | {"num_key_value_heads": 4}),
    "llama 3.1": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama, linear": LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    ),
    "mistral": MistralConfig(**SIZES, sliding_window=10),
    "mistral without window": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}),
    "qwen2 with windows": Qwen2Config(
        **{k: v for k, v in SIZES.items() if k != "head_dim"}, **ALTERNATING, use_sliding_window=True
    ),
    "qwen3": Qwen3Config(**SIZES),
    "qwen3 of 64": Qwen3Config(**SIZES | {"head_dim": 64}),
    "qwen3 of 128, tied": Qwen3Config(**SIZES | {"head_dim": 128, "tie_word_embeddings": True}),
    "qwen3, yarn": Qwen3Config(**SIZES | {"head_dim": 32}, rope_parameters=YARN),
}


def save(config: PreTrainedConfig, path: Path) -> Any:
    """A model with random weights in `path`, as transformers runs it."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():  # those that begin as ones and zeros, too
        if "norm" in name or "bias" in name:
            torch.nn.init.normal_(parameter, float("norm" in name), 0.2)
    model.save_pretrained(path)
    return model


def logits_of(runner: ModelRunner, prompts: list[list[int]], cuts: list[int]) -> list[torch.Tensor]:
    """Each prompt's logits at its end, computed piece by piece, all prompts' pieces of a turn in one step."""
    group = SequenceGroup(completion(*map(tuple, prompts)))
    sequences = [
        group.add(p, max_tokens=1, detokenizer=None)  # type: ignore[arg-type]
        for p in prompts
    ]
    size = runner.kv_cache.block_size
    blocks = iter(torch.randperm(runner.kv_cache.num_blocks, generator=torch.manual_seed(0)).tolist())
    found: dict[int, torch.Tensor] = {}
    for seq in sequences:
        seq.cache.block_table += [next(blocks) for _ in range(-(-len(seq.token_ids) // size))]
    begin = 0
    for cut in [*cuts, 10_000]:
        step = [
            ScheduledSequence(s, begin, min(cut, s.num_tokens)) for s in sequences if begin < s.num_tokens
        ]
        logits, _ = runner.run(step)
        found |= dict(zip([s.sequence.index for s in step if s.is_sampled], logits, strict=True))
        begin = cut
    return [found[i] for i in range(len(prompts))]


def prompts_of(*lengths: int) -> list[list[int]]:
    return [torch.randint(4, 400, (n,), generator=torch.manual_seed(n)).tolist() for n in lengths]


@pytest.mark.parametrize("kernels", ["native", "torch"])
@pytest.mark.parametrize("name", FAMILY)
def test_logits_are_those_of_transformers(name: str, kernels: Any, tmp_path: Path) -> None:
    model = save(FAMILY[name], tmp_path)
    config = EngineConfig(
        model=str(tmp_path),
        model_impl="weir",
        cpu_kernels=kernels,
        num_threads=1,
        max_num_seqs=8,
        block_size=4,
    )
    runner = ModelRunner.load(config)
    prompts = prompts_of(1, 40, 7, 90, 33)
    # A whole prefill, then chunks, short spans and single tokens over what was kept.
    logits = logits_of(runner, prompts, [30, 31, 36, 60])
    for prompt, found in zip(prompts, logits, strict=True):
        with torch.inference_mode():
            expected = model(torch.tensor([prompt])).logits[0, -1]
        assert torch.allclose(found, expected, atol=2e-4), (found - expected).abs().max()


@pytest.mark.parametrize("name", ["llama", "qwen3 of 64"])
def test_in_bfloat16_the_kernels_in_c_are_as_near_to_float32_as_torch_is(name: str, tmp_path: Path) -> None:
    save(FAMILY[name], tmp_path)
    prompts = prompts_of(90, 20, 61)

    def run(dtype: Any, kernels: Any) -> torch.Tensor:
        config = EngineConfig(
            model=str(tmp_path),
            model_impl="weir",
            cpu_kernels=kernels,
            dtype=dtype,
            num_threads=1,
            max_num_seqs=8,
        )
        return torch.stack(logits_of(ModelRunner.load(config), prompts, [50, 51]))

    exact = run("float32", "torch")
    by_torch, by_c = ((run("bfloat16", kernels) - exact).abs().mean() for kernels in ("torch", "native"))
    assert by_c < 1.25 * by_torch < 0.1


def test_several_threads_give_what_one_gives(tmp_path: Path) -> None:
    save(FAMILY["qwen3 of 128, tied"], tmp_path)
    prompts = prompts_of(*range(300, 330))
    results = []
    for num_threads in (1, 4):
        config = EngineConfig(
            model=str(tmp_path), cpu_kernels="native", num_threads=num_threads, max_num_seqs=32
        )
        results.append(torch.stack(logits_of(ModelRunner.load(config), prompts, [299])))
    torch.set_num_threads(1)
    assert torch.allclose(*results, atol=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(n_layer=1),
        LlamaConfig(hidden_act="gelu"),
        LlamaConfig(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
    ],
)
def test_what_differs_by_more_than_configuration_is_not_taken(config: PreTrainedConfig) -> None:
    assert DecoderConfig.of(config) is None


def test_a_checkpoint_with_tensors_that_nobody_knows_is_left_to_transformers(tmp_path: Path) -> None:
    save(FAMILY["llama"], tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {"model.layers.0.gate": torch.ones(1)}, file, metadata={"format": "pt"})
    assert isinstance(ModelRunner.load(EngineConfig(model=str(tmp_path))).model, TransformersModel)
    with pytest.raises(ValueError, match=r"model\.layers\.0\.gate"):
        ModelRunner.load(EngineConfig(model=str(tmp_path), model_impl="weir"))


def test_a_checkpoint_in_several_files_is_read(tmp_path: Path) -> None:
    save(FAMILY["llama"], tmp_path / "one")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="50KB")
    assert (
        len(
            set(
                json.loads((tmp_path / "many/model.safetensors.index.json").read_text())[
                    "weight_map"
                ].values()
            )
        )
        > 2
    )
    logits = [
        logits_of(
            ModelRunner.load(EngineConfig(model=str(tmp_path / name), model_impl="weir")), prompts_of(20), []
        )[0]
        for name in ("one", "many")
    ]
    assert torch.equal(*logits)


def test_model_impl_chooses_whose_code_runs(tiny_model: Callable[[str], Any]) -> None:
    path = str(tiny_model("llama").path)
    chosen = {
        impl: ModelRunner.load(EngineConfig(model=path, model_impl=impl)).model
        for impl in ("auto", "transformers")
    }
    assert isinstance(chosen["auto"], Decoder)
    assert isinstance(chosen["transformers"], TransformersModel)
    with pytest.raises(ValueError, match="family"):
        ModelRunner.load(EngineConfig(model=str(tiny_model("gpt2").path), model_impl="weir"))


def test_without_a_compiler_torch_does_the_work(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    native_library.load.cache_clear()
    try:
        path = str(tiny_model("llama").path)
        assert logits_of(ModelRunner.load(EngineConfig(model=path)), prompts_of(5), [])
        with pytest.raises(ValueError, match="no kernels in C"):
            ModelRunner.load(EngineConfig(model=path, cpu_kernels="native"))
    finally:
        native_library.load.cache_clear()


def test_a_user_without_a_home_is_served_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    native_library.load.cache_clear()
    try:
        assert native_library.load(torch.float32) is None
    finally:
        native_library.load.cache_clear()


def test_a_compiler_may_come_with_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "cc -DNOTHING")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native_library.load.cache_clear()
    try:
        assert native_library.load(torch.float32) is not None
    finally:
        native_library.load.cache_clear()


def test_torch_s_kernels_are_all_that_runs_if_they_are_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save(FAMILY["llama"], tmp_path)
    monkeypatch.setattr(native_library, "load", lambda dtype: pytest.fail("C was asked for"))
    config = EngineConfig(model=str(tmp_path), cpu_kernels="torch", quantization="int8")
    assert logits_of(ModelRunner.load(config), prompts_of(5), [])


@pytest.mark.parametrize("in_c", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 16, 17, 40])
def test_int8_weights_are_within_their_rounding(dtype: torch.dtype, tokens: int, in_c: bool) -> None:
    torch.manual_seed(tokens)
    weight, x = torch.randn(50, 37).to(dtype), torch.randn(tokens, 37).to(dtype)
    bias, residual = torch.randn(50).to(dtype), torch.randn(tokens, 50).to(dtype)
    exact = make_linear(weight.float(), bias.float())(x.float(), residual.float())
    library = native_library.load(dtype)
    assert library is not None
    own_linear = partial(fast_linear, library) if in_c else no_linear
    found = make_linear(weight, bias, "int8", own_linear)(x, residual).float()
    step = weight.float().abs().amax(1) / 127
    bound = 0.5 * step * x.float().abs().sum(1, keepdim=True) + (0 if dtype == torch.float32 else 0.05) + 1e-4
    assert ((found - exact).abs() <= bound * 1.02).all()


def test_int8_keeps_a_model_s_choices(tmp_path: Path) -> None:
    save(FAMILY["qwen3 of 64"], tmp_path)
    prompts = prompts_of(30, 11, 50)
    exact, rounded = (
        torch.stack(
            logits_of(ModelRunner.load(EngineConfig(model=str(tmp_path), quantization=q)), prompts, [10])
        )
        for q in (None, "int8")
    )
    assert torch.cosine_similarity(exact, rounded).min() > 0.995
    with pytest.raises(ValueError, match="own decoder"):
        ModelRunner.load(EngineConfig(model=str(tmp_path), quantization="int8", model_impl="transformers"))
