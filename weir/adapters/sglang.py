"""Weir's logits processors as a custom logit processor of SGLang.

    WEIR_CONFIG=weir.yaml python -m sglang.launch_server --enable-custom-logit-processor ...

A request sends `REFERENCE` as `custom_logit_processor`: a name, and no code. Its `custom_params` name Weir's
processors: `{"logits_processors": [{"name": "no_digits"}]}`.

Read in `sglang/srt/sampling/custom_logit_processor.py`, `sampling_batch_info.py` and `layers/sampler.py` of
SGLang 0.5.23.
"""

import json
from collections import Counter
from typing import Any

from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor
from torch import Tensor

from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.other_engines import Joined, Row
from weir.adapters.logits import FIELD, ServedProcessors, asked_processors, served_processors

REFERENCE = json.dumps({"callable": b"cweir.adapters.sglang\nProcessors\n.".hex()})
"""`Processors`, by its name: a pickle that only says which module has which class."""
_ROW = "__weir__"


class Processors(CustomLogitProcessor):
    """All processors that requests name. SGLang makes an instance for each new batch, so the state of a
    sequence is in its own parameters.

    Speculative decoding asks for several places of a sequence at a time, and SGLang does not say which: these
    sequences end (contract 7.7).
    """

    @classmethod
    def to_str(cls) -> str:
        return REFERENCE

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> Tensor:
        """Return `logits` `[rows, vocab]`, changed in place."""
        served = served_processors(False)
        params = custom_param_list or [{}] * len(logits)
        counts = Counter(map(id, params))
        rows = [None if one is None or counts[id(one)] > 1 else _row(served, one, logits) for one in params]
        served.apply(rows, logits)
        return logits


def _row(served: ServedProcessors, params: dict[str, Any], logits: Tensor) -> Row | None:
    """The sequence that has these parameters. None: it cannot be processed."""
    if (row := params.get(_ROW)) is None and (request := params.get("__req__")) is not None:
        try:
            specs = asked_processors(params.get(FIELD))
        except ValueError:
            return None
        tokens = Joined(lambda: request.origin_input_ids, lambda: request.output_ids)
        token_ids = TokenIds(tokens, len(request.origin_input_ids))
        row = params[_ROW] = served.row(str(request.rid), specs, token_ids, logits)
    return row
