"""A classifier of transformers, of texts or of tokens, on the service's own device: `--hook classifier`.

The windows of all streams that wait are judged together, on a thread of their own, while other streams go on.
"""

from pathlib import Path
from typing import Annotated, Unpack

from pydantic import Field

from hooks import checked
from hooks.detect.actor import Options
from hooks.detect.argument_types import Count, Names
from hooks.detect.batches import Batches
from hooks.detect.judges import JudgeGuard
from hooks.detect.windows import Unit, make_windows

try:
    from hooks.builtin.classifier_models import load_classifier
except ImportError as error:
    raise ImportError(
        "the guard needs torch and transformers: install the extra 'engine' of weir-proxy"
    ) from error


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
        """`model`: a folder, or a name on the hub, whose config says what it is: for sequence classification,
        which judges windows whole, or for token classification, which finds entities in them. None of its
        code is run.

        `labels`: those to act on, without `B-` and the like; None: all entities of a token classifier.
        `threshold`: from 0 to 1, the least score that counts. `window`: how many `unit`s are judged together,
        and `stride` from the first of them to that of the next window (None: three quarters). Tokens are
        counted word by word. At most `window` characters are held, 32 for each token, 400 for each sentence.
        `device`: `auto` is CUDA where there is a device. `max_batch_size`: windows to judge at a time.

        A score does not depend on what is judged in the same batch, but for rounding: one within 0.0001 of
        `threshold` may count or not. Raises `ValueError` for what the model cannot do.
        """
        classifier = load_classifier(model, labels, threshold, device)
        windows = make_windows(unit, window, stride, classifier.num_tokens)
        if unit == "tokens" and window > classifier.max_tokens:
            raise ValueError(f"the model takes {classifier.max_tokens} tokens, not a window of {window}")
        super().__init__(Batches(classifier, max_batch_size).ask, windows, **options)
