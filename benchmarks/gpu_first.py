"""What a machine with a GPU should run first: is the CUDA path right?

    python -m benchmarks.gpu_first

It needs torch for CUDA, with its Triton, and transformers. Models are made on the spot, with random weights.
A line that says WRONG makes the exit status 1.

- Whether the kernels in Triton pass their trial, by type and by shape.
- Draws: a seed gives the same tokens as on a CPU by the same operators, and a draw waits for nothing.
- Greedy tokens and their logprobs against transformers' on the same device: three architectures, by each
  backend, with CUDA graphs and without. Where two tokens are as good as even, either is right.
- The cache's size: the share of the GPU that was asked for is filled, within 5%, and the largest steps have
  room.

Without a GPU it is a smoke test of itself: tiny models, float32, Triton's interpreter.
"""

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen3Config

from engine.device.budget import budget_of
from engine.device.kernels.choice import choose_attention
from engine.device.kernels.probe import AttentionNeeds
from engine.device.kv_cache import LayerShape
from engine.execution.cuda_graphs import DecodeGraphs
from engine.execution.model_runner import ModelRunner
from engine.execution.warm_up import WarmUp
from engine.models.load import device_of
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig
from engine.sampling import sampler as sampler_module
from engine.sampling.logits_processors import TokenIds
from engine.sampling.sampler import SampledToken, Sampler
from engine.sampling.sampling_state import SamplingState
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sequence import Sequence, SequenceGroup

HAS_GPU = torch.cuda.is_available()
DEVICE: Any = "cuda" if HAS_GPU else "cpu"
TOLERANCES = {"float32": 2e-5, "bfloat16": 2e-2}
"""Of logprobs, in the mean. None may be off by more than five times as much, which in bfloat16 is a few of
the steps between neighbouring logits."""
DTYPES = ["float32", "bfloat16"] if HAS_GPU else ["float32"]
BACKENDS: list[Any] = ["triton", "sdpa"]
NUM_PROMPTS, LONGEST, NUM_TOKENS = (20, 400, 48) if HAS_GPU else (3, 40, 4)
SIZES: dict[str, Any] = (
    {
        "vocab_size": 4096,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "initializer_range": 0.03,
    }
    if HAS_GPU
    else {
        "vocab_size": 400,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "initializer_range": 0.2,
    }
) | {
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "eos_token_id": None,
    "bos_token_id": None,
}
MODELS: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "qwen3": Qwen3Config(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=100 if HAS_GPU else 10),
}
_is_wrong = False


class Output(NamedTuple):
    ids: list[int]
    logprobs: list[float]
    step_seconds: list[float]
    """Of the steps in which all sequences decode."""


def report(line: str, *, wrong: bool = False) -> None:
    global _is_wrong
    _is_wrong |= wrong
    print(f"  {line}{'   WRONG' if wrong else ''}", flush=True)


def prompts_of(number: int, longest: int, vocab_size: int) -> list[list[int]]:
    rng = torch.Generator().manual_seed(5)
    lengths = [1, longest, *torch.randint(1, longest, (number - 2,), generator=rng).tolist()]
    return [torch.randint(0, vocab_size, (n,), generator=rng).tolist() for n in lengths[:number]]


def sequence(token_ids: list[int], max_tokens: int) -> Sequence:
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="completions",
        prompts=(tuple(token_ids),),
        sampling=SamplingParams(),
    )
    group = SequenceGroup(request)
    detokenizer: Any = None
    return group.add(token_ids, max_tokens=max_tokens, detokenizer=detokenizer)


def generate(runner: ModelRunner, prompts: list[list[int]], max_tokens: int) -> list[Output]:
    """Greedily: the scheduler and the model, without what makes text of tokens."""
    cache = runner.kv_cache
    config = EngineConfig(max_num_seqs=len(prompts), block_size=cache.block_size)
    scheduler = Scheduler(config, cache.num_blocks)
    outputs: dict[Sequence, Output] = {}
    step_seconds: list[float] = []
    for prompt in prompts:
        seq = sequence(list(prompt), max_tokens)
        outputs[seq] = Output(seq.token_ids, [], step_seconds)
        scheduler.add(seq)
    while scheduler.running or scheduler.waiting:
        begin = time.perf_counter()
        scheduled = scheduler.schedule()
        logits, _ = runner.run(scheduled)
        best = logits.log_softmax(-1).max(-1)
        drawn = iter(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        if all(s.is_decode for s in scheduled):
            step_seconds.append(time.perf_counter() - begin)
        for s in scheduled:
            is_sampled = s.is_sampled
            scheduler.update(s)
            if is_sampled:
                token, logprob = next(drawn)
                s.sequence.token_ids.append(token)
                outputs[s.sequence].logprobs.append(logprob)
            if s.sequence.num_output_tokens == max_tokens:
                scheduler.remove(s.sequence)
    return list(outputs.values())


def config_of(folder: str, dtype: Any, backend: Any, *, graphs: bool, **settings: Any) -> EngineConfig:
    settings = {
        "max_num_seqs": 64,
        "kv_cache_memory": 2**30 if HAS_GPU else 2**22,
        "num_threads": 1,
    } | settings
    return EngineConfig(
        model=folder,
        model_impl="weir",
        dtype=dtype,
        device=DEVICE,
        attention_backend=backend,
        enforce_eager=not graphs,
        **settings,
    )


def runner_of(folder: str, dtype: Any, backend: Any, *, graphs: bool, **settings: Any) -> ModelRunner:
    runner = ModelRunner.load(config_of(folder, dtype, backend, graphs=graphs, **settings))
    if graphs and not HAS_GPU:
        # The same buffers, and what would have been captured.
        with torch.inference_mode():
            runner.graphs = DecodeGraphs(
                runner.model.forward,
                runner.kv_cache,
                max_rows=4,
                max_model_len=runner.max_model_len,
                capture=lambda run: run,
            )
    return runner


def environment() -> None:
    import triton

    print(f"torch {torch.__version__}, Triton {triton.__version__}, ", end="")
    if not HAS_GPU:
        print("no GPU: a smoke test of this script\n", flush=True)
        return
    properties = torch.cuda.get_device_properties(0)
    print(
        f"CUDA {torch.version.cuda}, {properties.name}, compute capability {properties.major}."
        f"{properties.minor}, {properties.multi_processor_count} multiprocessors\n",
        flush=True,
    )


def needs_of(heads: int, kv_heads: int, dim: int, dtype: str) -> AttentionNeeds:
    shapes = frozenset({LayerShape(kv_heads, dim, dim)})
    windows = frozenset({None, 10})
    return AttentionNeeds(heads, shapes, windows, 16, getattr(torch, dtype), torch.device(DEVICE))


def check_backends() -> None:
    shapes = [(14, 2, 64), (16, 8, 128), (32, 8, 128), (8, 1, 256)] if HAS_GPU else [(4, 2, 12)]
    for dtype in [*DTYPES, "float16"]:
        for heads, kv_heads, dim in shapes:
            result = "works"
            try:
                choose_attention("triton", needs_of(heads, kv_heads, dim, dtype))
            except ValueError as error:
                result = str(error)
            what = f"{dtype}, {heads} heads on {kv_heads} of {dim}"
            report(f"{what}: {result}", wrong=result != "works")


def check_draws() -> None:
    """Rounding may turn a draw whose two best tokens are as good as even: one in a hundred is a lot."""
    logits = 3 * torch.randn(256, SIZES["vocab_size"], generator=torch.Generator().manual_seed(2))
    drawn: list[list[int]] = []
    is_on_cpu = sampler_module.is_on_cpu
    sampler_module.is_on_cpu = lambda logits: False
    try:
        for device in (torch.device("cpu"), torch.device(DEVICE)):
            states = [_state(row) for row in range(len(logits))]
            given, sampler = logits.to(device), Sampler(device, seed=0)
            sampler.sample(given, states)  # what is made once may wait
            if HAS_GPU:
                torch.cuda.set_sync_debug_mode("error" if device.type == "cuda" else "default")
            result = sampler.draw(given, states)
            if HAS_GPU:
                torch.cuda.set_sync_debug_mode("default")
            drawn.append([one.id for one in result.read() if isinstance(one, SampledToken)])
    finally:
        sampler_module.is_on_cpu = is_on_cpu
    num_same = sum(a == b for a, b in zip(*drawn, strict=True))
    report(f"draws with seeds: {num_same} of {len(logits)} as on a CPU", wrong=num_same < 0.99 * len(logits))


def _state(seed: int) -> SamplingState:
    params = SamplingParams(
        temperature=0.9, top_p=0.95, top_k=20, repetition_penalty=1.1, frequency_penalty=0.1, min_tokens=9
    )
    token_ids = TokenIds([1, 2, 3 + seed % 7], num_prompt_tokens=2)
    return SamplingState("r", params, token_ids, frozenset({5}), seed=seed)


def usable(dtype: str) -> Iterator[tuple[Any, bool]]:
    """Each backend that passes its trial, and whether graphs are captured; sdpa is never captured."""
    heads, kv_heads, dim = (SIZES[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    for backend in BACKENDS:
        try:
            choose_attention(backend, needs_of(heads, kv_heads, dim, dtype))
        except ValueError:
            continue
        yield from ((backend, graphs) for graphs in ((False,) if backend == "sdpa" else (False, True)))


@torch.inference_mode()
def check_model(name: str) -> None:
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(3)
            model = AutoModelForCausalLM.from_config(MODELS[name], dtype=getattr(torch, dtype)).to(DEVICE)
            model.eval().save_pretrained(folder)
            prompts = prompts_of(NUM_PROMPTS, LONGEST, SIZES["vocab_size"])
            theirs = [_their_tokens(model, prompt) for prompt in prompts]
            for backend, graphs in usable(dtype):
                runner = runner_of(folder, dtype, backend, graphs=graphs)
                ours = generate(runner, prompts, NUM_TOKENS)
                what = f"{name}, {dtype}, {backend}, {'graphs' if graphs else 'eager'}"
                _compare(what, model, prompts, ours, theirs, TOLERANCES[dtype])
                del runner
                free()


def _their_tokens(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt], device=DEVICE)
    options = {"max_new_tokens": NUM_TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found: list[int] = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    return found


def _compare(
    what: str,
    model: Any,
    prompts: list[list[int]],
    ours: list[Output],
    theirs: list[list[int]],
    tolerance: float,
) -> None:
    num_same = num_even = 0
    errors: list[float] = []
    for prompt, output, expected in zip(prompts, ours, theirs, strict=True):
        logits = model(torch.tensor([output.ids], device=DEVICE)).logits[0, len(prompt) - 1 : -1]
        logprobs = logits.float().log_softmax(-1)
        own = torch.tensor(output.ids[len(prompt) :], device=DEVICE)
        given = torch.tensor(output.logprobs, device=DEVICE)
        errors += (logprobs.gather(1, own[:, None])[:, 0] - given).abs().nan_to_num(torch.inf).tolist()
        differing = [i for i, pair in enumerate(zip(output.ids, expected, strict=True)) if len(set(pair)) > 1]
        num_same += not differing
        if differing:
            row = logprobs[differing[0] - len(prompt)]
            gap = abs(float(row[output.ids[differing[0]]] - row[expected[differing[0]]]))
            num_even += gap < 5 * tolerance
    mean, largest = statistics.mean(errors), max(errors)
    report(
        f"{what}: tokens alike for {num_same} of {len(prompts)}, as good for {num_even}; logprobs off by "
        f"{mean:.1e}, at most {largest:.1e}",
        wrong=num_same + num_even < len(prompts) or mean > tolerance or largest > 5 * tolerance,
    )


@torch.inference_mode()
def check_memory() -> None:
    """The largest steps have room beside a cache that fills the share of the GPU that was asked for."""
    share = 0.5
    dtype = DTYPES[-1]
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(3)
        AutoModelForCausalLM.from_config(MODELS["llama"], dtype=getattr(torch, dtype)).save_pretrained(folder)
        for backend, graphs in usable(dtype):
            settings: dict[str, Any] = {"max_num_batched_tokens": 40, "max_num_seqs": 2, "max_model_len": 100}
            if HAS_GPU:
                # So many sequences want more than there is.
                settings = {"kv_cache_memory": None, "gpu_memory_utilization": share, "max_num_seqs": 2**17}
            config = config_of(folder, dtype, backend, graphs=graphs, **settings)
            free()
            budget = budget_of(device_of(config))
            before = budget.memory.free() if budget else 0
            runner = ModelRunner.load(config)
            warm_up = WarmUp(runner.model, config, runner.max_model_len)
            what = f"{backend}, {'graphs' if graphs else 'eager'}: the largest steps"
            try:
                warm_up.run_largest_steps()
            except torch.OutOfMemoryError:
                report(f"{what} find too little memory", wrong=True)
            else:
                report(f"{what} have room")
            if budget:
                filled = (before - budget.memory.free()) / budget.memory.total
                filled_text = f"{filled:.1%} of the GPU are filled, and {share:.0%} were asked for"
                report(filled_text, wrong=abs(filled - share) > 0.05 * share)
            del runner, warm_up


def free() -> None:
    gc.collect()
    if HAS_GPU:
        torch.cuda.empty_cache()


def main() -> None:
    if not HAS_GPU and "TRITON_INTERPRET" not in os.environ:
        # Read when Triton is imported, which transformers has done.
        command = [sys.executable, "-m", "benchmarks.gpu_first"]
        os.execve(sys.executable, command, os.environ | {"TRITON_INTERPRET": "1"})
    environment()
    check_backends()
    check_draws()
    for name in MODELS:
        check_model(name)
    check_memory()
    sys.exit(_is_wrong)


if __name__ == "__main__":
    main()
