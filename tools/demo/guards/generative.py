"""Trains the generative guard that ships, from the body of the stream guard.

python -m tools.demo.guards.generative [--from DIR] [--out DIR] [--steps N] [--seed N]

The model reads a conversation, laid out as for the stream guard, and then a turn of the role `judge`. There
it writes the verdict in the form of Qwen3Guard-Gen: `Safety: Unsafe`, and on a second line `Categories: Card
Number`. The verdict is on the last message, a question or a reply. Most replies are cut anywhere, as a guard
sees them in a stream.
"""

import argparse
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase, Qwen3ForCausalLM

from engine.demo import GENERATIVE_GUARD_DIR, MODEL_DIR, STREAM_GUARD_DIR
from tools.demo.guards.exchanges import RISK_OF, RISKS, SAFE, UNSAFE, Exchange, Offence, exchanges, offences
from tools.demo.guards.model import body_config
from tools.demo.train import schedule

OUT = GENERATIVE_GUARD_DIR
TAIL = "<|im_start|>judge\nSafety:"
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
<|im_start|>judge
{% endif -%}
"""
ROWS = 16
LONGEST = 480


def conversation(exchange: Exchange, *, without_reply: bool = False) -> str:
    """The exchange as the chat template lays it out. `without_reply`: the last reply is left out."""
    text = "" if exchange.system is None else f"<|im_start|>system\n{exchange.system}<|im_end|>\n"
    for i, (question, reply, _) in enumerate(exchange.turns):
        text += f"<|im_start|>user\n{question}<|im_end|>\n"
        if not (without_reply and i == len(exchange.turns) - 1):
            text += f"<|im_start|>assistant\n{reply}<|im_end|>\n"
    return text


def verdict(found: tuple[Offence, ...]) -> str:
    """The judge's answer behind `Safety:`."""
    risk = max((RISK_OF[one.category] for one in found), key=(SAFE, 2, UNSAFE).index, default=SAFE)
    names = list(dict.fromkeys(one.category for one in found))
    return f" {RISKS[risk]}\nCategories: {', '.join(names) or 'None'}<|im_end|>"


def sample(rng: random.Random, exchange: Exchange) -> tuple[str, str]:
    """A conversation that ends in a question, a whole reply or the beginning of one; and the verdict."""
    *before, (question, reply, found) = exchange.turns
    if rng.random() < 0.15:
        return conversation(exchange, without_reply=True), verdict(found)
    if rng.random() < 0.7:
        reply = reply[: rng.randint(1, len(reply))]
        found = offences(reply, exchange.system)
    return conversation(replace(exchange, turns=(*before, (question, reply, found)))), verdict(found)


def batches(tokenizer: PreTrainedTokenizerBase, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids and labels, `[ROWS, tokens]`. Only the verdict is learned. Half of the rows have an offence."""
    rng, source = random.Random(seed), exchanges(seed)
    while True:
        rows: list[tuple[list[int], list[int]]] = []
        while len(rows) < ROWS:
            text, answer = sample(rng, next(source))
            if len(rows) % 2 and "None" in answer:
                continue
            ids = tokenizer(text + TAIL)["input_ids"]
            learned = tokenizer(answer)["input_ids"]
            if len(ids) + len(learned) <= LONGEST:
                rows.append((ids + learned, [-100] * len(ids) + learned))
        longest = max(len(ids) for ids, _ in rows)
        pad = tokenizer.pad_token_id
        yield (
            torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows]),
            torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in rows]),
        )


def train(model: Qwen3ForCausalLM, data: Iterator[tuple[Tensor, Tensor]], steps: int) -> None:
    """Train in place, in bfloat16 over float32 weights."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule(step, steps))
    mean = 0.0
    model.train()
    progress = tqdm(range(steps), unit="step", mininterval=10)
    for step in progress:
        ids, labels = next(data)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
            wanted = labels[:, 1:] != -100
            logits = model.lm_head(hidden[wanted])
        loss = cross_entropy(logits.float(), labels[:, 1:][wanted])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        mean = loss.item() if not step else 0.98 * mean + 0.02 * loss.item()
        progress.set_postfix(loss=f"{mean:.4f}", refresh=False)


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Write the model's folder. Weights are float16, and are computed in float32."""
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=False
    )
    model.half().save_pretrained(out)
    model.config.dtype = torch.float32
    model.config.save_pretrained(out)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="stream", type=Path, default=STREAM_GUARD_DIR)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--steps", type=int, default=900, help=f"batches of {ROWS} conversations")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    model = Qwen3ForCausalLM(body_config(tokenizer))
    body = load_file(args.stream / "model.safetensors")
    own = {name: value.float() for name, value in body.items() if name.startswith("model.")}
    model.load_state_dict(own | {"lm_head.weight": own["model.embed_tokens.weight"]})
    train(model, batches(tokenizer, args.seed), args.steps)
    save(model.eval(), tokenizer, args.out)


if __name__ == "__main__":
    main()
