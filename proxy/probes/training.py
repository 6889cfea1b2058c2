"""Fits a probe to the activations of labelled replies.

The label is for a whole reply, and a served probe reads the reply token by token. So the loss is the one of
Constitutional Classifiers++ (arXiv 2601.04603). Each token has a running score, as when the probe is served.
The binary cross-entropies of a reply's tokens are weighted by the softmax of their running scores. So a reply
without the label must stay low everywhere, and one with the label must become high somewhere.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from engine.probe_info import ProbeKind

NUM_STEPS = 150
LEARNING_RATE = 0.02
HIDDEN_UNITS = 32


class Replies:
    """The activations of many replies, one after another."""

    def __init__(self, inputs: Sequence[Tensor], labels: Sequence[int]) -> None:
        """`inputs`: each reply's activations, `[tokens, inputs]`. Raises `ValueError` unless there are
        replies with each label."""
        if not {0, 1} <= {*labels}:
            raise ValueError("training needs exchanges with the label 0, and others with the label 1")
        self.lengths = torch.tensor([len(one) for one in inputs])
        self.mean = sum_of(inputs) / self.lengths.sum()
        variance = sum_of([(one - self.mean).square() for one in inputs]) / self.lengths.sum()
        self.scale = variance.sqrt().clamp(min=1e-4)
        self.inputs = torch.cat([(one - self.mean) / self.scale for one in inputs])
        self.labels = torch.tensor(labels, dtype=torch.float32)
        self.owners = torch.repeat_interleave(torch.arange(len(labels)), self.lengths)
        """Each token's reply, `[tokens]`."""
        self.starts = self.lengths.cumsum(0) - self.lengths
        """The first token of each reply."""


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of all rows of all tensors."""
    total = torch.zeros(tensors[0].shape[1], dtype=torch.float64)
    for one in tensors:
        total += one.sum(0, dtype=torch.float64)
    return total.float()


def fit(replies: Replies, kind: ProbeKind, *, span: int, seed: int) -> dict[str, Tensor]:
    """The tensors of a probe with one label (`engine.probes.probe_file`). `span`: the tokens that the running
    score spans; an attention probe weighs tokens itself. The same arguments give the same probe on the same
    machine."""
    generator = torch.Generator().manual_seed(seed)
    weights = _new_weights(kind, replies.inputs.shape[1], generator)
    parameters = [tensor.requires_grad_() for tensor in weights.values()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.05)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS)
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = _loss(_running(kind, weights, replies, span), replies)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rate.step()
    fitted = {name: tensor.detach() for name, tensor in weights.items()}
    return fitted | {"mean": replies.mean, "scale": replies.scale}


def logits(kind: ProbeKind, tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """The scores of tokens, `[tokens, scores]`, from standardized inputs. The served model computes the same
    in fewer operations (`engine.probes.heads`)."""
    if kind == "mlp":
        inputs = torch.addmm(tensors["hidden.bias"], inputs, tensors["hidden.weight"].T).relu()
    scores = torch.addmm(tensors["bias"], inputs, tensors["weight"].T)
    if kind == "attention":
        weight = torch.addmm(tensors["query.bias"], inputs, tensors["query.weight"].T)
        scores = torch.cat([weight, scores], dim=1)
    return scores


def _new_weights(kind: ProbeKind, num_inputs: int, generator: torch.Generator) -> dict[str, Tensor]:
    num_units = HIDDEN_UNITS if kind == "mlp" else num_inputs
    weights = {"weight": torch.zeros(1, num_units), "bias": torch.zeros(1)}
    if kind == "mlp":
        weights["weight"] = torch.randn(1, num_units, generator=generator) * num_units**-0.5
        weights["hidden.weight"] = torch.randn(num_units, num_inputs, generator=generator) * num_inputs**-0.5
        weights["hidden.bias"] = torch.zeros(num_units)
    if kind == "attention":
        weights["query.weight"] = torch.zeros(1, num_inputs)
        weights["query.bias"] = torch.zeros(1)
    return weights


def _running(kind: ProbeKind, weights: Mapping[str, Tensor], replies: Replies, span: int) -> Tensor:
    """The running score of each token, `[tokens]`."""
    scores = logits(kind, weights, replies.inputs).double()
    if kind == "attention":
        return _attended(scores[:, 0], scores[:, 1], replies)
    return _windowed(scores[:, 0], replies, span)


def _windowed(scores: Tensor, replies: Replies, span: int) -> Tensor:
    """The mean of the last `span` tokens of the reply, or of as many as there are."""
    places = torch.arange(len(scores))
    first = torch.maximum(replies.starts[replies.owners], places - span + 1)
    sums = torch.cat([torch.zeros(1, dtype=scores.dtype), scores.cumsum(0)])
    return (sums[places + 1] - sums[first]) / (places + 1 - first)


def _attended(weight: Tensor, scores: Tensor, replies: Replies) -> Tensor:
    """The mean of the reply's tokens so far, weighted by the softmax of their weights."""
    greatest = _by_reply(
        lambda empty: empty.scatter_reduce(0, replies.owners, weight.detach(), "amax"), replies
    )
    share = (weight - greatest[replies.owners]).exp()
    total, summed = (
        torch.cat([torch.zeros(1, dtype=scores.dtype), one.cumsum(0)]) for one in (share, share * scores)
    )
    places, first = torch.arange(len(scores)) + 1, replies.starts[replies.owners]
    return (summed[places] - summed[first]) / (total[places] - total[first]).clamp(min=1e-12)


def _by_reply(reduce: Callable[[Tensor], Tensor], replies: Replies) -> Tensor:
    return reduce(torch.full((len(replies.lengths),), -torch.inf, dtype=torch.float64))


def _loss(running: Tensor, replies: Replies) -> Tensor:
    """Both labels count alike, however many replies have each."""
    label = replies.labels.double()
    each = binary_cross_entropy_with_logits(running, label[replies.owners], reduction="none")
    greatest = _by_reply(
        lambda empty: empty.scatter_reduce(0, replies.owners, running.detach(), "amax"), replies
    )
    share = (running - greatest[replies.owners]).exp()
    none = torch.zeros(len(label), dtype=torch.float64)
    losses = none.scatter_add(0, replies.owners, share * each) / none.scatter_add(0, replies.owners, share)
    return losses[label == 1].mean() + losses[label == 0].mean()
