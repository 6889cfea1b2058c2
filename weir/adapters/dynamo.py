"""Weir's logits processors as Dynamo's: its protocol `BaseLogitsProcessor`, and its spec.

    spec = weir.adapters.dynamo.spec(NamedProcessorSpec("no_digits"))    # an engine's own spec, at start
    create_trtllm_adapters([weir.adapters.dynamo.Processor(...)])        # or one request's

Read in `dynamo/common/backend/engine.py`, `dynamo/logits_processing` and `dynamo/trtllm/logits_processing` of
ai-dynamo 1.6.1. Dynamo's adapter for TensorRT-LLM logs an error of a processor and draws the token all the
same, so `Processor` raises none.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from engine.protocol.processor_specs import ForcedTokenSequenceSpec, LogitsProcessorSpec
from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.other_engines import Row
from engine.sampling.logits_processors.started import log_failure
from weir.adapters.logits import served_processors


def spec(*asked: LogitsProcessorSpec) -> Any:
    """Dynamo's `LogitsProcessorSpec` of Weir's processors, in order. One that forces tokens becomes Dynamo's
    own, which every backend of Dynamo reads. Raises `ValueError` for a configuration that cannot run."""
    from dynamo.common.backend import engine

    entries: list[Any] = []
    for one in asked:
        if isinstance(one, ForcedTokenSequenceSpec):
            entries.append(engine.ForcedTokenSequenceSpec(tuple(one.token_ids), one.eos_token_id))
        else:
            served_processors(False)
            entries.append(engine.PythonProcessorSpec(partial(Processor, one)))
    return engine.LogitsProcessorSpec(tuple(entries))


class Processor:
    """A `BaseLogitsProcessor` for one sequence: the processors that `asked` names. The tokens of its first
    call are the prompt. Raises `ValueError` for a configuration that cannot run, and nothing when called."""

    def __init__(self, *asked: LogitsProcessorSpec) -> None:
        self._asked = asked
        self._served = served_processors(False)
        self._input_ids: Sequence[int] = ()
        self._row: Row | None = None

    def __call__(self, input_ids: Sequence[int], logits: Tensor) -> None:
        """Change the `logits` `[vocab]` in place. `input_ids`: the sequence so far."""
        try:
            self._input_ids = input_ids
            if self._row is None:
                token_ids = TokenIds(_Latest(self), len(input_ids))
                self._row = self._served.row("dynamo", self._asked, token_ids, logits)
            self._served.apply([self._row], logits[None])
        except Exception as error:  # noqa: BLE001 - Dynamo would draw the token all the same
            log_failure("weir", "failed", error)
            self._served.end(logits)


class _Latest(Sequence[int]):
    """The tokens of the processor's latest call."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def __getitem__(self, at: Any) -> Any:
        return self._processor._input_ids[at]

    def __len__(self) -> int:
        return len(self._processor._input_ids)
