"""What drafts gain: prompt lookup, a small draft model, and both, beside no drafts.

    python -m benchmarks.speculation [--draft DIR] [--batches 1,4,16] [--guesses 4] [--layers 24]

Acceptance needs models that say something. The draft model is the first two layers of the small model that
ships, trained for a few minutes on its corpus (kept in `build/`, or given by `--draft`). The model is the one
that ships, made as slow as a larger one: layers and columns are added whose weights are zero, so that it says
the same. The prompts are conversations that neither was trained on, greedy and with a temperature of 0.7.

All settings take turns within one run: the median CPU time of an output token, the steps for a token, and the
share of the guesses that came true. `same` says whether the outputs are those without drafts.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.machine import bandwidth, processor
from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import Dtype, EngineConfig
from engine.text.tokenizer import LocalTokenizer
from tools.demo.corpus import conversations
from tools.demo.train import batches, save, train_to_write

DRAFT_DIR = Path("build/draft-model")
DRAFT_LAYERS = 2
TRAINING_STEPS = 300
UNSEEN_SEED = 987_654
MAX_TOKENS = 96


class Result(NamedTuple):
    cpu_seconds: float
    num_tokens: int
    num_steps: int
    num_guesses: int
    num_accepted: int
    ids: list[list[int]]


class Side:
    """The engine with one of the settings."""

    def __init__(self, folder: Path, dtype: Dtype, **settings: Any) -> None:
        config = EngineConfig(
            model=str(folder), dtype=dtype, kv_cache_memory=2**28, num_threads=1, **settings
        )
        tokenizer, runner = LocalTokenizer.load(config.model), ModelRunner.load(config)
        self._core = EngineCore(runner, tokenizer, config)
        self._processor = InputProcessor.make(tokenizer, runner, config)

    def run(self, prompts: list[str], temperature: float) -> Result:
        sampling = SamplingParams(temperature=temperature, seed=1, max_tokens=MAX_TOKENS)
        groups = [self._processor.process(_chat(prompt, sampling)) for prompt in prompts]
        before, begin = self._core.stats(), time.process_time()
        for group in groups:
            self._core.add(group)
        while self._core.has_work:
            self._core.step()
        seconds, after = time.process_time() - begin, self._core.stats()
        return Result(
            seconds,
            sum(group.num_output_tokens for group in groups),
            after.steps_total - before.steps_total,
            after.spec_decode_draft_tokens_total - before.spec_decode_draft_tokens_total,
            after.spec_decode_accepted_tokens_total - before.spec_decode_accepted_tokens_total,
            [seq.token_ids for group in groups for seq in group.sequences],
        )


def _chat(text: str, sampling: SamplingParams) -> GenerationRequest:
    message = {"role": "user", "content": text}
    return GenerationRequest(
        request_id="r", model="m", endpoint="chat", messages=(message,), sampling=sampling
    )


def make_draft(folder: Path) -> None:
    """Train the first layers of the model that ships."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    model = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32)
    model.model.layers = model.model.layers[:DRAFT_LAYERS]
    _set_layers(model.config, DRAFT_LAYERS)
    train_to_write(model, batches(tokenizer, seed=7), TRAINING_STEPS)
    folder.parent.mkdir(parents=True, exist_ok=True)
    save(model, tokenizer, folder)


def make_target(folder: Path, num_layers: int, width: int) -> int:
    """The model that ships, with layers and columns of zeros. Returns the number of weights."""
    shipped = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32)
    config = shipped.config
    num_own, own_width = config.num_hidden_layers, config.intermediate_size
    _set_layers(config, max(num_layers, num_own))
    config.intermediate_size = max(width, own_width)
    model = AutoModelForCausalLM.from_config(config)
    state = model.state_dict()
    for name, weight in shipped.state_dict().items():
        rows = slice(weight.shape[0])
        columns = (slice(weight.shape[1]),) if weight.dim() == 2 else ()
        if name.endswith("down_proj.weight"):
            state[name].zero_()
        state[name][(rows, *columns)] = weight
    for i in range(num_own, config.num_hidden_layers):
        for last in ("self_attn.o_proj", "mlp.down_proj"):
            state[f"model.layers.{i}.{last}.weight"].zero_()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODEL_DIR).save_pretrained(folder)
    shipped.generation_config.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


def _set_layers(config: Any, number: int) -> None:
    config.num_hidden_layers = number
    config.layer_types = ["full_attention"] * number


def unseen_prompts(number: int) -> list[str]:
    return [talk.turns[0].user for talk in itertools.islice(conversations(UNSEEN_SEED), number)]


def compare(sides: dict[str, Side], num_prompts: int, temperature: float, repeats: int) -> None:
    prompts = unseen_prompts(num_prompts * repeats)
    results: dict[str, list[Result]] = {name: [] for name in sides}
    for side in sides.values():
        side.run(prompts[:num_prompts], temperature)
    for i in range(repeats):
        for name, side in sides.items():
            some = prompts[i * num_prompts : (i + 1) * num_prompts]
            results[name].append(side.run(some, temperature))
    print(f"\n{num_prompts} streams, temperature {temperature:g}")
    first = next(iter(results.values()))
    for name, own in results.items():
        cost = statistics.median(1e3 * r.cpu_seconds / r.num_tokens for r in own)
        gain = statistics.median(
            (a.cpu_seconds / a.num_tokens) / (b.cpu_seconds / b.num_tokens)
            for a, b in zip(first, own, strict=True)
        )
        steps = sum(r.num_steps for r in own) / sum(r.num_tokens for r in own) * num_prompts
        guesses, accepted = sum(r.num_guesses for r in own), sum(r.num_accepted for r in own)
        share = f"{accepted / guesses:.0%} of {guesses}" if guesses else "-"
        same = all(a.ids == b.ids for a, b in zip(first, own, strict=True))
        print(
            f"  {name:<12} CPU ms a token {cost:6.2f} ({gain:.2f}x)   steps a token of a stream {steps:.2f}"
            f"   came true {share:<12} same {same}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draft", type=Path, default=DRAFT_DIR)
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--temperatures", default="0,0.7")
    parser.add_argument("--guesses", type=int, default=4)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    if not options.draft.exists():
        make_draft(options.draft)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        num_weights = make_target(folder, options.layers, options.width)
        print(f"{processor()}, one thread: {bandwidth(1) / 1e9:.1f} GB/s read")
        print(f"{num_weights / 1e6:.0f}M weights, {options.dtype}, {options.guesses} guesses")
        some: dict[str, Any] = {"num_speculative_tokens": options.guesses}
        model = some | {"speculative_model": str(options.draft)}
        settings = {
            "no drafts": {},
            "lookup": some,
            "draft model": model | {"speculative_method": "draft_model"},
            "both": model,
        }
        sides = {name: Side(folder, options.dtype, **one) for name, one in settings.items()}
        for batch, temperature in itertools.product(
            map(int, options.batches.split(",")), map(float, options.temperatures.split(","))
        ):
            compare(sides, batch, temperature, options.repeats)


if __name__ == "__main__":
    main()
