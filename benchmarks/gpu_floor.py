"""How far a decode step on a GPU is from its floor: the time to read its weights, keys and values once.

    python -m benchmarks.gpu_floor

In the shape of Qwen3-0.6B, with random weights, by each attention backend, with CUDA graphs and without; the
bandwidth is what a copy has on the same device. Before that, how fast decode's attention alone reads keys and
values. Run `benchmarks.gpu_first` before: what is wrong may well be fast. Needs a GPU.
"""

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config
from triton.testing import do_bench

from benchmarks.gpu_first import BACKENDS, environment, free, generate, needs_of, runner_of, sequence
from engine.device.attention import PagedAttention, Scoring
from engine.device.batch import Batch
from engine.device.kernels.choice import choose_attention
from engine.device.kv_cache import KVCache, LayerShape
from engine.device.layout import Layout
from engine.scheduling.sequence import ScheduledSequence

SMALL = Qwen3Config(
    vocab_size=151936,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=True,
    max_position_embeddings=40960,
    eos_token_id=None,
)
DTYPE = torch.bfloat16
HEADS, KEPT = 16, LayerShape(8, 128, 128)
BLOCK_SIZE, NUM_TOKENS = 16, 48


def bytes_a_second() -> float:
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    return 2 * source.numel() / _seconds(copy)


@torch.inference_mode()
def time_attention(rows: int, context: int) -> None:
    """Of one layer, keeping the new keys and values included."""
    width = -(-context // BLOCK_SIZE)
    device = torch.device("cuda")
    cache = KVCache({0: KEPT}, num_blocks=rows * width, block_size=BLOCK_SIZE, dtype=DTYPE, device=device)
    scheduled = []
    for blocks in torch.randperm(rows * width).view(rows, width).tolist():
        seq = sequence([0] * context, 1)
        seq.cache.block_table += blocks
        scheduled.append(ScheduledSequence(seq, context - 1, context))
    batch = Batch.of(Layout.of(scheduled, BLOCK_SIZE), device)
    query = torch.randn(rows, HEADS, KEPT.key_dim, device=device, dtype=DTYPE)
    key = torch.randn(rows, KEPT.num_kv_heads, KEPT.key_dim, device=device, dtype=DTYPE)
    for name in BACKENDS:
        try:
            backend = choose_attention(name, needs_of(HEADS, KEPT.num_kv_heads, KEPT.key_dim, "bfloat16"))
        except ValueError:
            continue
        attention = (backend or PagedAttention)(cache, batch)
        seconds = _seconds(partial(attention, 0, query, key, key, Scoring()))
        speed = rows * context * KEPT.num_bytes(DTYPE) / seconds / 1e12
        print(
            f"  {rows} rows of {context} keys, {name}: {1e6 * seconds:.0f} us, {speed:.2f} TB/s", flush=True
        )


@torch.inference_mode()
def time_steps(folder: str, backend: Any, graphs: bool, bandwidth: float) -> None:
    try:
        runner = runner_of(folder, "bfloat16", backend, graphs=graphs, kv_cache_memory=16 * 2**30)
    except ValueError as error:
        print(f"  {error}", flush=True)
        return
    weights = sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))
    kept = SMALL.num_hidden_layers * KEPT.num_bytes(DTYPE)
    for rows, context in ((1, 128), (1, 4096), (8, 512), (64, 512), (64, 2048)):
        # They begin differently, so that none finds another's blocks.
        prompts = [[i] * context for i in range(rows)]
        step = statistics.median(generate(runner, prompts, NUM_TOKENS)[0].step_seconds[8:])
        floor = (weights + rows * (context + NUM_TOKENS / 2) * kept) / bandwidth
        print(
            f"  {backend}, {'graphs' if graphs else 'eager'}, {rows} of {context} tokens: a step takes "
            f"{1e3 * step:.2f} ms, its floor is {1e3 * floor:.2f} ms ({step / floor:.1f} x)",
            flush=True,
        )


def _seconds(run: Callable[[], object]) -> float:
    milliseconds: float = do_bench(run, return_mode="median")
    return milliseconds / 1e3


def main() -> None:
    environment()
    bandwidth = bytes_a_second()
    print(f"a copy moves {bandwidth / 1e12:.2f} TB/s, read and written")
    print("attention:")
    for rows, context in ((1, 4096), (1, 32768), (8, 4096), (64, 1024), (64, 4096)):
        time_attention(rows, context)
        free()
    print("decode steps:")
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(SMALL, dtype=DTYPE).save_pretrained(folder)
        for backend in BACKENDS:
            for graphs in (False,) if backend == "sdpa" else (True, False):
                time_steps(folder, backend, graphs, bandwidth)
                free()


if __name__ == "__main__":
    main()
