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
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen3ForCausalLM

from engine.protocol.demo import GENERATIVE_GUARD_DIR, MODEL_DIR, STREAM_GUARD_DIR
from tools.demo.guards.exchanges import RISK_OF, RISKS, SAFE, UNSAFE, Exchange, Offence, exchanges, offences
from tools.demo.guards.model import body_config
from tools.demo.train import CHAT_TEMPLATE, IGNORED, save, train

OUT = GENERATIVE_GUARD_DIR
TAIL = "<|im_start|>judge\nSafety:"
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
                rows.append((ids + learned, [IGNORED] * len(ids) + learned))
        longest = max(len(ids) for ids, _ in rows)
        pad = tokenizer.pad_token_id
        yield (
            torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows]),
            torch.tensor([labels + [IGNORED] * (longest - len(labels)) for _, labels in rows]),
        )


def loss_of(model: Qwen3ForCausalLM, ids: Tensor, labels: Tensor) -> Tensor:
    """Both `[rows, tokens]`. Logits are computed for the verdict's tokens alone."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    learned = labels[:, 1:] != IGNORED
    return cross_entropy(model.lm_head(hidden[learned]).float(), labels[:, 1:][learned])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="stream", type=Path, default=STREAM_GUARD_DIR)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--steps", type=int, default=480, help=f"batches of {ROWS} conversations")
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
    optims = [torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)]
    train(model, optims, batches(tokenizer, args.seed), args.steps, lambda batch: loss_of(model, *batch))
    tokenizer.chat_template = CHAT_TEMPLATE.replace("<|im_start|>assistant", "<|im_start|>judge")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save(model.eval(), tokenizer, args.out)


if __name__ == "__main__":
    main()
