"""A transformers model that classifies texts or tokens, on the service's own device: `--hook classifier`.

A separate thread judges the waiting windows of all streams together, while other streams continue.
"""

from pathlib import Path
from typing import Annotated, Unpack

from pydantic import Field

from hooks import checked
from hooks.api.extras import from_extra
from hooks.builtin.classifier_models.batches import Batches
from hooks.detect.acting_guard import Options
from hooks.detect.argument_types import Count, Names
from hooks.detect.judge_guard import JudgeGuard
from hooks.detect.windows import Unit, make_windows

with from_extra("engine", "torch and transformers"):
    from hooks.builtin.classifier_models.classifiers import load_classifier


class Classifier(JudgeGuard):
    """Finds the labels that a transformers model gives to windows of text, or to their tokens."""

    @checked
    def __init__(
        self,
        model: str | Path,
        *,
        labels: Names | None = None,
        threshold: Annotated[float, Field(gt=0, le=1)] = 0.5,
        unit: Unit = "tokens",
        window: Count = 64,
        stride: Count | None = None,
        device: str = "auto",
        max_batch_size: Count = 32,
        **options: Unpack[Options],
    ) -> None:
        """`model`: a folder, or a name on the hub. Its config names the task: sequence classification judges
        whole windows, token classification finds entities in them. No code of the model is run.

        `labels`: the labels to act on, without `B-` and the like; None: all entities of a token classifier.
        `threshold`: from 0 to 1, the least score that counts. `window`: the number of `unit`s judged
        together. `stride`: the units from the start of one window to the start of the next (None: three
        quarters). Tokens are counted word by word. The guard holds at most `window` characters, or 32 for
        each token, or 400 for each sentence. `device`: `auto` is CUDA if there is one. `max_batch_size`:
        windows judged at a time.

        A score does not depend on the other windows of its batch, except rounding: a score within 0.0001 of
        `threshold` may count or not. Raises `ValueError` for what the model cannot do.
        """
        classifier = load_classifier(model, labels, threshold, device)
        windows = make_windows(unit, window, stride, classifier.num_tokens)
        if unit == "tokens" and window > classifier.max_tokens:
            raise ValueError(f"the model takes {classifier.max_tokens} tokens, not a window of {window}")
        super().__init__(Batches(classifier, max_batch_size).ask, windows, **options)
