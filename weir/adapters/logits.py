"""Weir's logits processors, for servers that call them with the logits of their own models.

The processors are those of the configuration (`weir.adapters.configured`): a request names them, with their
parameters, and nothing that it sends is run as code (contract 7.3). None of these servers lets a processor
fail its request. So a sequence whose processor fails, or whose parameters are wrong, may only end: all logits
but those of the model's ends are minus infinity.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from pydantic import BaseModel, TypeAdapter, ValidationError
from torch import Tensor

from engine.core.input_processor import make_context, make_registry
from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError, SamplingParams
from engine.protocol.processor_specs import LogitsProcessorSpec, NamedProcessorSpec
from engine.sampling.logits_processors import TokenIds
from engine.sampling.logits_processors.other_engines import Row, process
from engine.sampling.logits_processors.registry import ProcessorRegistry
from engine.sources.files import config_of, eos_token_ids_of
from engine.text.tokenizer import LocalTokenizer
from weir.adapters.configured import configured_model

FIELD = "logits_processors"
"""The name under which a request's own parameters for the server name processors."""


class _Asked(BaseModel, extra="forbid"):
    name: str
    params: dict[str, Any] = {}


_ASKED = TypeAdapter(list[_Asked])


def asked_processors(value: Any) -> list[NamedProcessorSpec]:
    """The processors that a request names: a list of `{"name": ..., "params": {...}}`, or its JSON. Raises
    `ValueError`, without the values."""
    try:
        asked = _ASKED.validate_json(value) if isinstance(value, str) else _ASKED.validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise ValueError(f"{FIELD}: {reason}") from None
    return [NamedProcessorSpec(one.name, one.params) for one in asked]


class ServedProcessors:
    """The processors of the configuration. Raises `ValueError` for a configuration that cannot run.

    `has_all`: whether the server calls them for every request. Where it does not, a mandatory processor
    cannot be honoured, and is refused.
    """

    def __init__(self, *, has_all: bool) -> None:
        self._config = configured_model()
        named = self._config.logits_processors
        if not has_all and (always := [one.name for one in named if one.mandatory]):
            raise ValueError(f"logits_processors: here {always[0]!r} cannot be mandatory for every request")
        self._tokenizer = LocalTokenizer.of(self._config)
        config = config_of(self._config.model, trust_remote_code=self._config.trust_remote_code)
        self._ends = eos_token_ids_of(self._config.model, config)
        self._registries: dict[tuple[int, torch.device], ProcessorRegistry] = {}
        self.registry(config.get_text_config().vocab_size, torch.device("cpu"))  # a wrong one fails at start

    def registry(self, vocab_size: int, device: torch.device) -> ProcessorRegistry:
        """For logits of this width on this device."""
        if (made := self._registries.get((vocab_size, device))) is None:
            context = make_context(self._tokenizer, vocab_size, self._ends, device)
            self._ends = frozenset(context.eos_token_ids)
            made = self._registries[vocab_size, device] = make_registry(context, self._config)
        return made

    def check(self, specs: Sequence[NamedProcessorSpec]) -> None:
        """Raise `ValueError` for processors or parameters that a request may not ask for."""
        request = GenerationRequest(
            request_id="weir-check",
            model="",
            endpoint="completions",
            sampling=SamplingParams(logits_processors=tuple(specs)),
        )
        try:
            next(iter(self._registries.values())).realize(request)
        except (RequestError, LogitsProcessorError) as error:
            raise ValueError(str(error)) from None

    def row(
        self, request_id: str, specs: Sequence[LogitsProcessorSpec], token_ids: TokenIds, like: Tensor
    ) -> Row:
        """A sequence. `like`: logits of its model, of any shape `[..., vocab]`."""
        return Row(self.registry(like.shape[-1], like.device), request_id, specs, token_ids)

    def apply(self, rows: Sequence[Row | None], logits: Tensor) -> None:
        """Change the `logits` `[rows, vocab]` in place. None: the row may only end."""
        live = [at for at, row in enumerate(rows) if row is not None and row.error is None]
        if live:
            shaped = process([row for at in live if (row := rows[at]) is not None], logits[live].float())
            logits[live] = shaped.to(logits.dtype)
        for at, row in enumerate(rows):
            if row is None or row.error is not None:
                self.end(logits[at])

    def end(self, logits: Tensor) -> None:
        """Let nothing come but an end. `logits` `[vocab]` are changed in place."""
        logits.fill_(-math.inf)
        logits[[*self._ends]] = 0.0


@cache
def served_processors(has_all: bool) -> ServedProcessors:
    """Made once in each process. Raises `ValueError`."""
    return ServedProcessors(has_all=has_all)
