"""Fits a probe to the activations of labelled replies.

The label is for a whole reply, and a served probe reads the reply token by token. So the loss is the one of
Constitutional Classifiers++ (arXiv 2601.04603). Each token has a running score, as when the probe is served.
The binary cross-entropies of a reply's tokens are weighted by the softmax of their running scores. So a reply
without the label must stay low everywhere, and one with the label must become high somewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from engine.protocol.probe_info import ProbeKind

NUM_EPOCHS = 12
MIN_STEPS = 300
"""Steps of the optimizer, if `NUM_EPOCHS` has fewer."""
BATCH_SIZE = 128
"""Replies in a step of the optimizer."""
LEARNING_RATE = 0.005
HIDDEN_UNITS = 32


class Replies:
    """The activations of labelled replies."""

    def __init__(self, inputs: Sequence[Tensor], labels: Sequence[int]) -> None:
        """`inputs`: each reply's activations, `[tokens, inputs]`, float32. Raises `ValueError` unless there
        are replies with each label."""
        if not {0, 1} <= {*labels}:
            raise ValueError("training needs exchanges with the label 0, and some with the label 1")
        self.inputs = inputs
        self.labels = torch.tensor(labels, dtype=torch.float64)
        num_tokens = sum(map(len, inputs))
        self.mean = _sum_of(inputs) / num_tokens
        variance = _sum_of((one - self.mean).square() for one in inputs) / num_tokens
        self.scale = variance.sqrt().clamp(min=1e-4)

    @property
    def num_inputs(self) -> int:
        return len(self.mean)

    def batches(self, generator: torch.Generator) -> Iterator["_Batch"]:
        """All replies in a random order. Both labels weigh alike, however many replies have each."""
        share = self.labels.mean()
        weights = torch.where(self.labels == 1, 0.5 / share, 0.5 / (1 - share))
        for chosen in torch.split(torch.randperm(len(self.labels), generator=generator), BATCH_SIZE):
            some = [(self.inputs[i] - self.mean) / self.scale for i in chosen.tolist()]
            yield _Batch(some, self.labels[chosen], weights[chosen])


class _Batch:
    """Some replies, their standardized activations one after another."""

    def __init__(self, inputs: Sequence[Tensor], labels: Tensor, weights: Tensor) -> None:
        self.inputs = torch.cat([*inputs])
        self.labels = labels
        self.weights = weights
        lengths = torch.tensor([len(one) for one in inputs])
        self.owners = torch.repeat_interleave(torch.arange(len(inputs)), lengths)
        """Each token's reply, `[tokens]`."""
        self.starts = lengths.cumsum(0) - lengths
        """The first token of each reply."""


def _sum_of(tensors: Iterable[Tensor]) -> Tensor:
    """The sum of all rows of all tensors."""
    total: Tensor | None = None
    for one in tensors:
        summed = one.sum(0, dtype=torch.float64)
        total = summed if total is None else total + summed
    assert total is not None
    return total.float()


def fit(replies: Replies, kind: ProbeKind, *, span: int, seed: int) -> dict[str, Tensor]:
    """The tensors of a probe with one label (`engine.execution.probes.probe_file`). `span`: the
    tokens that the running score spans; an attention probe weighs tokens itself. The same arguments give the
    same probe on the same machine."""
    generator = torch.Generator().manual_seed(seed)
    weights = _new_weights(kind, replies.num_inputs, generator)
    parameters = [tensor.requires_grad_() for tensor in weights.values()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.05)
    num_epochs = max(NUM_EPOCHS, MIN_STEPS * BATCH_SIZE // len(replies.labels))
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_epochs)
    for _ in range(num_epochs):
        for batch in replies.batches(generator):
            optimizer.zero_grad()
            loss = _loss(_running(kind, weights, batch, span), batch)
            loss.backward()
            optimizer.step()
        rate.step()
    fitted = {name: tensor.detach() for name, tensor in weights.items()}
    return fitted | {"mean": replies.mean, "scale": replies.scale}


def logits(kind: ProbeKind, tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """The scores of tokens, `[tokens, scores]`, from standardized inputs. The served model computes the same
    in fewer operations (`engine.execution.probes.heads`)."""
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


def _running(kind: ProbeKind, weights: Mapping[str, Tensor], batch: _Batch, span: int) -> Tensor:
    """The running score of each token, `[tokens]`, float64."""
    scores = logits(kind, weights, batch.inputs).double()
    if kind == "attention":
        return _attended(scores[:, 0], scores[:, 1], batch)
    return _windowed(scores[:, 0], batch, span)


def _windowed(scores: Tensor, batch: _Batch, span: int) -> Tensor:
    """The mean of the last `span` tokens of the reply, or of as many as there are."""
    ends = torch.arange(len(scores)) + 1
    first = torch.maximum(batch.starts[batch.owners], ends - span)
    sums = _running_sums(scores)
    return (sums[ends] - sums[first]) / (ends - first)


def _attended(weight: Tensor, scores: Tensor, batch: _Batch) -> Tensor:
    """The mean of the reply's tokens so far, weighted by the softmax of their weights."""
    share = (weight - _greatest(weight, batch)).exp()
    ends, first = torch.arange(len(scores)) + 1, batch.starts[batch.owners]
    total, summed = _running_sums(share), _running_sums(share * scores)
    return (summed[ends] - summed[first]) / (total[ends] - total[first]).clamp(min=1e-12)


def _running_sums(values: Tensor) -> Tensor:
    """The sums of the first 0, 1, 2, ... values."""
    return torch.cat([torch.zeros(1, dtype=values.dtype), values.cumsum(0)])


def _greatest(values: Tensor, batch: _Batch) -> Tensor:
    """For each token, the greatest value of its reply, as a constant: it makes exponents safe."""
    lowest = torch.full((len(batch.labels),), -torch.inf, dtype=values.dtype)
    return lowest.scatter_reduce(0, batch.owners, values.detach(), "amax")[batch.owners]


def _loss(running: Tensor, batch: _Batch) -> Tensor:
    each = binary_cross_entropy_with_logits(running, batch.labels[batch.owners], reduction="none")
    share = (running - _greatest(running, batch)).exp()
    none = torch.zeros(len(batch.labels), dtype=torch.float64)
    losses = none.scatter_add(0, batch.owners, share * each) / none.scatter_add(0, batch.owners, share)
    return (losses * batch.weights).mean()
