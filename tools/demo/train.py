"""Trains the embedded model from nothing: a tokenizer, then the weights, on conversations sampled on the way.

python -m tools.demo.train [--out DIR] [--steps N] [--seed N]
"""

import argparse
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.protocol.demo import MODEL_DIR
from tools.demo.corpus import Conversation, conversations

Batch = TypeVar("Batch")

VOCAB_SIZE = 2048
CONTEXT = 1024
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Words with the mark or space before them, single digits, runs of marks, white space: as Qwen splits text.
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}
{%- endif -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
ROW = 512
ROWS = 8
IGNORED = -100


def train_tokenizer(texts: Iterator[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer, one token a digit, with a ChatML template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=18,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )


def new_model(tokenizer: PreTrainedTokenizerBase) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerBase, talk: Conversation) -> tuple[list[int], list[int]]:
    """Token ids and labels, laid out as by the chat template; only the assistant's tokens are learned."""
    pieces = [(f"<|im_start|>system\n{talk.system}<|im_end|>\n", False)] if talk.system is not None else []
    for turn in talk.turns:
        pieces.append((f"<|im_start|>user\n{turn.user}<|im_end|>\n<|im_start|>assistant\n", False))
        pieces.append((turn.answer if turn.endless else turn.answer + "<|im_end|>", True))
        pieces.append(("\n", False))
    ids: list[int] = []
    labels: list[int] = []
    for (_, learned), piece in zip(pieces, tokenizer([text for text, _ in pieces])["input_ids"], strict=True):
        ids += piece
        labels += piece if learned else [IGNORED] * len(piece)
    return ids, labels


def batches(tokenizer: PreTrainedTokenizerBase, seed: int) -> Iterator[dict[str, torch.Tensor]]:
    """Rows of whole conversations, `[ROWS, ROW]`; positions restart with each, so none sees another."""
    talks = conversations(seed)
    while True:
        rows: dict[str, list[list[int]]] = {"input_ids": [], "labels": [], "position_ids": []}
        for _ in range(ROWS):
            ids: list[int] = []
            labels: list[int] = []
            positions: list[int] = []
            while len(ids) < ROW:
                more_ids, more_labels = encode(tokenizer, next(talks))
                ids += more_ids
                labels += [IGNORED, *more_labels[1:]]
                positions += range(len(more_ids))
            for name, values in zip(rows, (ids, labels, positions), strict=True):
                rows[name].append(values[:ROW])
        yield {name: torch.tensor(values) for name, values in rows.items()}


def optimizers(model: torch.nn.Module, layers: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for everything else."""
    matrices = [p for p in layers.parameters() if p.ndim == 2]
    not_matrices = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    return [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.01),
        torch.optim.AdamW(not_matrices, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def schedule(step: int, steps: int) -> float:
    """The share of the full learning rate: a short rise, level, then down to nothing over the last third."""
    return max(0.0, min(1.0, (step + 1) / 60, 3 * (steps - step) / steps))


def train(
    model: torch.nn.Module,
    optims: Sequence[torch.optim.Optimizer],
    data: Iterator[Batch],
    steps: int,
    loss_of: Callable[[Batch], torch.Tensor],
) -> None:
    """Trains in place, computing in bfloat16 over float32 weights."""
    rates = [torch.optim.lr_scheduler.LambdaLR(optim, lambda step: schedule(step, steps)) for optim in optims]
    model.train()
    mean_loss: float | None = None
    progress = tqdm(itertools.islice(data, steps), total=steps, unit="step", mininterval=5)
    for batch in progress:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optim in optims:
            optim.step()
        for rate in rates:
            rate.step()
        model.zero_grad()
        mean_loss = loss.item() if mean_loss is None else 0.98 * mean_loss + 0.02 * loss.item()
        progress.set_postfix(loss=f"{mean_loss:.4f}", refresh=False)


def train_to_write(model: Any, data: Iterator[dict[str, torch.Tensor]], steps: int) -> None:
    """Trains a language model in place, by the loss of its next tokens. `data`: as `batches` gives it."""
    optims = optimizers(model, model.model.layers)
    train(model, optims, data, steps, lambda batch: model(**batch, use_cache=False).loss)


def save(model: Any, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Replaces `out` whole.  Weights are stored as float16; the configuration asks to compute in float32."""
    staging = Path(tempfile.mkdtemp(dir=out.parent))
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=False
    )
    model.half().save_pretrained(staging)
    for file in staging.iterdir():
        file.chmod(0o644)
    model.config.dtype = torch.float32
    model.config.save_pretrained(staging)
    tokenizer.save_pretrained(staging)
    staging.chmod(0o755)
    shutil.rmtree(out, ignore_errors=True)
    staging.rename(out)


def texts(seed: int, count: int) -> Iterator[str]:
    for talk in itertools.islice(conversations(seed), count):
        yield talk.system or ""
        for turn in talk.turns:
            yield turn.user
            yield turn.answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=MODEL_DIR, help="directory to write, replaced when done")
    parser.add_argument("--steps", type=int, default=2400, help=f"batches of {ROWS} x {ROW} tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    tokenizer = train_tokenizer(texts(args.seed, count=12_000))
    model = new_model(tokenizer)
    print(f"{len(tokenizer)} tokens, {sum(p.numel() for p in model.parameters()):,} parameters")
    train_to_write(model, batches(tokenizer, args.seed), args.steps)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save(model, tokenizer, args.out)


if __name__ == "__main__":
    main()
