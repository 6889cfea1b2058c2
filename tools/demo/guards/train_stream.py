"""Trains the stream guard that ships: risk and category for each token of a reply, and for a question.

python -m tools.demo.guards.train_stream [--out DIR] [--steps N] [--seed N]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.protocol.demo import MODEL_DIR, STREAM_GUARD_DIR
from tools.demo.guards.exchanges import CATEGORIES, RISK_OF, SAFE, UNSAFE, Exchange, Offence, exchanges
from tools.demo.guards.model import GuardModel, body_config, num_parameters, save
from tools.demo.train import IGNORED, ROW, ROWS, optimizers, train

OUT = STREAM_GUARD_DIR


class Row:
    """Tokens with their labels; -100: without a label."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.labels: dict[str, list[int]] = {
            name: [] for name in ("risk", "category", "query_risk", "query_category")
        }

    def add(self, ids: list[int], position: int, **labels: list[int]) -> None:
        """Append tokens, the first of them at `position` in its conversation."""
        self.ids += ids
        self.positions += range(position, position + len(ids))
        for name, values in self.labels.items():
            values += labels.get(name) or [IGNORED] * len(ids)


def token_labels(
    offsets: list[tuple[int, int]], offences: tuple[Offence, ...]
) -> tuple[list[int], list[int]]:
    """Each token's risk and category. From the first token of an offence on, every token carries the worst
    risk so far, and that offence's category."""
    risks, categories = [], []
    risk, category = SAFE, IGNORED
    waiting = list(offences)
    for _, end in offsets:
        while waiting and end > waiting[0].start:
            offence = waiting.pop(0)
            if risk == SAFE or (risk != UNSAFE and RISK_OF[offence.category] == UNSAFE):
                risk, category = RISK_OF[offence.category], CATEGORIES.index(offence.category)
        risks.append(risk)
        categories.append(category)
    return risks, categories


def add_exchange(row: Row, tokenizer: PreTrainedTokenizerBase, exchange: Exchange) -> None:
    """Append an exchange, laid out as by the chat template. A question has the risk of its reply."""
    at = 0

    def plain(text: str) -> None:
        nonlocal at
        ids = tokenizer(text)["input_ids"]
        row.add(ids, at)
        at += len(ids)

    if exchange.system is not None:
        plain(f"<|im_start|>system\n{exchange.system}<|im_end|>\n")
    for question, reply, offences in exchange.turns:
        plain(f"<|im_start|>user\n{question}")
        worst = token_labels([(0, len(reply))], offences)
        row.add(tokenizer("<|im_end|>")["input_ids"], at, query_risk=worst[0], query_category=worst[1])
        at += 1
        plain("\n<|im_start|>assistant\n")
        encoded = tokenizer(reply, return_offsets_mapping=True)
        risk, category = token_labels(encoded["offset_mapping"], offences)
        row.add(encoded["input_ids"], at, risk=risk, category=category)
        at += len(risk)
        plain("<|im_end|>\n")


def batches(tokenizer: PreTrainedTokenizerBase, seed: int) -> Iterator[dict[str, Tensor]]:
    """Rows of whole exchanges, `[ROWS, ROW]`. Positions restart with each, so none sees another."""
    source = exchanges(seed)
    while True:
        rows = []
        for _ in range(ROWS):
            row = Row()
            while len(row.ids) < ROW:
                add_exchange(row, tokenizer, next(source))
            rows.append(row)
        named = {"input_ids": [row.ids for row in rows], "position_ids": [row.positions for row in rows]}
        named |= {name: [row.labels[name] for row in rows] for name in rows[0].labels}
        yield {name: torch.tensor([values[:ROW] for values in some]) for name, some in named.items()}


def loss_of(model: GuardModel, batch: dict[str, Tensor]) -> Tensor:
    hidden = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"])
    total = torch.zeros(())
    for prefix, head in (("", model.reply), ("query_", model.query)):
        for kind, logits in zip(("risk", "category"), head(hidden), strict=True):
            labels = batch[prefix + kind].flatten()
            if (labels != IGNORED).any():
                total = total + cross_entropy(logits.float().flatten(0, 1), labels, ignore_index=IGNORED)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--steps", type=int, default=1500, help=f"batches of {ROWS} x {ROW} tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    model = GuardModel(body_config(tokenizer))
    print(f"{num_parameters(model):,} parameters")
    optims = optimizers(model, model.model.layers)
    train(model, optims, batches(tokenizer, args.seed), args.steps, lambda batch: loss_of(model, batch))
    save(model.eval(), tokenizer, args.out)


if __name__ == "__main__":
    main()
