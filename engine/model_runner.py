"""Loads a transformers model, and computes a step's logits with it.

Any decoder-only model whose attention goes through transformers' `AttentionInterface` will do; others are
refused at load, with the reason.
"""

import inspect
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from engine.attention import IMPLEMENTATION, Batch, PagedAttention, PrefillChunk, layer_index
from engine.config import EngineConfig
from engine.kv_cache import KVCache, LayerShape, free_memory
from engine.scheduler import ScheduledSequence

NO_INTERFACE = "its attention does not go through transformers' AttentionInterface"

logger = logging.getLogger("weir.engine")


class ModelRunner:
    """A model, and the cache that its attention keeps keys and values in."""

    def __init__(self, model: PreTrainedModel, config: EngineConfig) -> None:
        """Size and allocate the cache for a loaded model. Raises `ValueError` for what cannot be served."""
        self.model = model
        self.device = model.device
        text_config = model.config.get_text_config()
        self.vocab_size = int(text_config.vocab_size)
        max_model_len = _max_model_len(text_config, config)
        layers = _probe(model)
        block_bytes = sum(shape.num_bytes(model.dtype) for shape in layers.values()) * config.block_size
        wanted = config.max_num_seqs * -(-max_model_len // config.block_size) * block_bytes
        memory = config.kv_cache_memory
        if memory is None:
            memory = min(wanted, free_memory(self.device) // 4)
        num_blocks = memory // block_bytes
        if not num_blocks:
            raise ValueError(f"kv_cache_memory of {memory} bytes holds not one block of {block_bytes} bytes.")
        self.kv_cache = KVCache(
            layers,
            num_blocks=num_blocks,
            block_size=config.block_size,
            dtype=model.dtype,
            device=self.device,
        )
        self.max_model_len = min(max_model_len, num_blocks * config.block_size)
        """Longest prompt and output together that both model and cache have room for."""
        if self.max_model_len < max_model_len:
            logger.warning(
                "the cache holds %d tokens; the model could take %d", self.max_model_len, max_model_len
            )

    @classmethod
    def load(cls, config: EngineConfig) -> "ModelRunner":
        """Load `config.model`. Raises `ValueError` if it cannot be served, `OSError` if it is not there."""
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        device = config.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        options: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
        _check_architecture(AutoConfig.from_pretrained(config.model, **options))
        dtype = config.dtype if config.dtype == "auto" else getattr(torch, config.dtype)
        options |= {"dtype": dtype, "device_map": device, "attn_implementation": IMPLEMENTATION}
        try:
            model = AutoModelForCausalLM.from_pretrained(config.model, **options)
        except KeyError as error:
            if IMPLEMENTATION not in error.args:
                raise
            raise ValueError(f"This engine cannot serve {config.model}: {NO_INTERFACE}.") from error
        return cls(model, config)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """From the model's `generation_config`; nothing else of that is applied to requests."""
        generation_config = self.model.generation_config
        ids = generation_config.eos_token_id if generation_config is not None else None
        return frozenset(() if ids is None else [ids] if isinstance(ids, int) else ids)

    @torch.inference_mode()
    def run(self, scheduled: Sequence[ScheduledSequence]) -> tuple[Tensor, Tensor]:
        """Compute the step that was scheduled, those of a single token first.

        Gives logits `[rows, vocab]`, float32, twice: a row for each that `is_sampled`, and one for each of
        the `prompt_logprob_positions`, in order.
        """
        input_ids: list[int] = []
        positions: list[int] = []
        sample_rows: list[int] = []
        prompt_rows: list[int] = []
        for s in scheduled:
            row = len(input_ids) - s.start
            prompt_rows += (row + position for position in s.prompt_logprob_positions)
            input_ids += s.sequence.token_ids[s.start : s.end]
            positions += range(s.start, s.end)
            if s.is_sampled:
                sample_rows.append(len(input_ids) - 1)
        output = self.model(
            input_ids=self._tensor([input_ids]),
            position_ids=self._tensor([positions]),
            use_cache=False,
            logits_to_keep=self._tensor([*sample_rows, *prompt_rows]),
            attend=PagedAttention(self.kv_cache, self._batch(scheduled)),
        )
        logits: Tensor = output.logits[0].float()
        return logits[: len(sample_rows)], logits[len(sample_rows) :]

    def _batch(self, scheduled: Sequence[ScheduledSequence]) -> Batch:
        size = self.kv_cache.block_size
        slots: list[int] = []
        decodes: list[ScheduledSequence] = []
        chunks: list[PrefillChunk] = []
        for s in scheduled:
            first = len(slots)
            table = s.sequence.block_table
            slots += (table[position // size] * size + position % size for position in range(s.start, s.end))
            if s.end - s.start == 1:
                decodes.append(s)
            else:
                chunks.append(PrefillChunk(first, len(slots), s.start, self._tensor([table])))
        width = max((len(s.sequence.block_table) for s in decodes), default=0)
        tables = [s.sequence.block_table + [0] * (width - len(s.sequence.block_table)) for s in decodes]
        return Batch(
            slots=self._tensor(slots),
            num_decodes=len(decodes),
            block_tables=self._tensor(tables),
            positions=self._tensor([s.start for s in decodes]),
            chunks=tuple(chunks),
        )

    def _tensor(self, values: list[Any]) -> Tensor:
        return torch.tensor(values, dtype=torch.long).to(self.device, non_blocking=True)


def _check_architecture(config: PreTrainedConfig) -> None:
    text_config = config.get_text_config()
    layer_types = set(getattr(text_config, "layer_types", None) or ()) - {
        "full_attention",
        "sliding_attention",
    }
    reason = None
    if config.is_encoder_decoder:
        reason = "it is an encoder-decoder"
    elif layer_types:
        reason = f"it has layers of {', '.join(sorted(layer_types))}"
    elif getattr(text_config, "num_kv_shared_layers", None):
        reason = "its layers share keys and values"
    if reason:
        raise ValueError(f"This engine cannot serve {type(config).__name__}: {reason}.")


def _max_model_len(text_config: PreTrainedConfig, config: EngineConfig) -> int:
    own: int | None = getattr(text_config, "max_position_embeddings", None)
    rope = getattr(text_config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # Beyond this length it turns every position of the batch otherwise, short and cached ones too.
        own = int(rope["original_max_position_embeddings"])
    max_model_len = config.max_model_len or own
    if max_model_len is None:
        raise ValueError("The model does not tell how long a text it can take: set max_model_len.")
    if own is not None and max_model_len > own:
        raise ValueError(f"max_model_len is {max_model_len}, but the model was made for {own} tokens.")
    return max_model_len


@torch.inference_mode()
def _probe(model: PreTrainedModel) -> dict[int, LayerShape]:
    """Each attention layer's shape, learnt from a forward of one token rather than trusted to the config."""
    name = type(model).__name__
    if not model._supports_attention_backend or getattr(model, "_is_stateful", False):
        raise ValueError(f"This engine cannot serve {name}: {NO_INTERFACE}.")
    missing = {"position_ids", "logits_to_keep"} - set(inspect.signature(model.forward).parameters)
    if missing:
        raise ValueError(
            f"This engine cannot serve {name}: its forward takes no {' and no '.join(sorted(missing))}."
        )
    layers: dict[int, LayerShape] = {}

    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        layers[layer_index(module)] = LayerShape(key.shape[1], key.shape[3], value.shape[3])
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])

    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    try:
        model(input_ids=token, position_ids=token, use_cache=False, logits_to_keep=token[0], attend=attend)
    except (TypeError, NotImplementedError) as error:
        raise ValueError(f"This engine cannot serve {name}: {error}.") from error
    if len(layers) != model.config.get_text_config().num_hidden_layers:
        raise ValueError(
            f"This engine cannot serve {name}: {len(layers)} of its layers attend by AttentionInterface."
        )
    return layers
