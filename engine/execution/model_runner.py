"""Computes the logits of a step: loads a model, sizes the cache for it, and runs it."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.budget import budget_of, gib
from engine.device.cuda import raise_if_lost
from engine.device.kv_cache import KVCache
from engine.device.layout import MAX_JUDGED_SPAN, MAX_SPAN, Layout, Span
from engine.device.threads import Threads
from engine.device.trials import TrialRecord
from engine.execution.cuda_graphs import DecodeGraphs, GraphCapture
from engine.execution.scoring import TokenScorer, scorer_of
from engine.execution.warm_up import WarmUp, longest_texts, room_for_cache
from engine.models.heads import classifies_tokens
from engine.models.load import Model, device_of, load_model
from engine.protocol import ProbeInfo
from engine.protocol.options import EngineConfig
from engine.sources.files import config_of, eos_token_ids_of
from engine.sources.model_config import ModelConfig

logger = logging.getLogger("weir.engine")


class ModelRunner:
    """A model, and the cache for its keys and values."""

    def __init__(
        self,
        model: Model,
        hf_config: ModelConfig,
        config: EngineConfig,
        draft: tuple[Model, ModelConfig, EngineConfig] | None = None,
        probes: TokenScorer | None = None,
    ) -> None:
        """Size and allocate the cache for a loaded model. Raises `ValueError` if memory does not suffice.

        `draft`: the same for the draft model. Both caches have equal numbers of blocks, and share the memory.
        `probes`: see `use_probes`.
        """
        self.model = model
        self.device = model.device
        text_config = hf_config.get_text_config()
        self.vocab_size = int(text_config.vocab_size)
        self.eos_token_ids = eos_token_ids_of(config.model, hf_config)
        max_model_len = max_model_len_of(text_config, config)
        num_scores = 0 if probes is None else probes.num_scores
        self.use_probes(probes)
        draft_block_bytes = _block_bytes(draft[0], config) if draft else 0
        block_bytes = _block_bytes(model, config) + draft_block_bytes + 4 * num_scores * config.block_size
        wanted = config.max_num_seqs * -(-max_model_len // config.block_size) * block_bytes
        memory = config.kv_cache_memory
        if memory is None:
            warm_ups = [WarmUp(model, config, max_model_len, num_scores)]
            if draft:
                draft_len = max_model_len_of(draft[1].get_text_config(), draft[2])
                warm_ups.append(WarmUp(draft[0], draft[2], draft_len))
            memory = min(wanted, room_for_cache(warm_ups, config))
        num_blocks = memory // block_bytes
        if not num_blocks:
            raise ValueError(f"kv_cache_memory of {memory} bytes holds not one block of {block_bytes} bytes.")
        try:
            self.kv_cache = KVCache(
                model.layers,
                num_blocks=num_blocks,
                block_size=config.block_size,
                dtype=model.dtype,
                device=self.device,
                num_scores=num_scores,
            )
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise ValueError(f"a kv_cache_memory of {memory} bytes does not fit.") from error
        self.draft: ModelRunner | None = None
        """Runs the draft model, whose cache has blocks of the same numbers."""
        if draft:
            draft_model, draft_hf_config, draft_config = draft
            share = draft_config.model_copy(update={"kv_cache_memory": num_blocks * draft_block_bytes})
            self.draft = ModelRunner(draft_model, draft_hf_config, share)
        self._threads = Threads.fixed(config.num_threads) or self._try_threads(text_config, config)
        self.max_model_len = min(max_model_len, num_blocks * config.block_size)
        """The most tokens of a prompt and its output together. Model and cache both have room for them."""
        if self.max_model_len < max_model_len:
            logger.warning(
                "the cache holds %d tokens; the model could take %d", self.max_model_len, max_model_len
            )
        max_decode_tokens = config.max_num_seqs * (1 + config.num_speculative_tokens)
        self.graphs = None if config.enforce_eager else self._capture(max_decode_tokens)
        """Run the steps that they have room for. None: every step runs operator by operator."""

    @classmethod
    def load(cls, config: EngineConfig) -> "ModelRunner":
        """Load `config.model`, and the draft model if `config` names one. Raises `ValueError` if one of them
        cannot be served or has no room, `OSError` if it does not exist, and `DeviceLostError`."""
        budget = budget_of(device_of(config))  # it sees the memory before the models take theirs
        try:
            return cls._load(config)
        except torch.OutOfMemoryError as error:
            if budget is None:
                raise
            memory = f"{gib(budget.memory.free())} of the GPU's {gib(budget.memory.total)} are free"
            raise ValueError(
                f"{config.model} finds too little memory: {memory}. End other programs on the GPU, give the"
                " models loaded before less memory (gpu_memory_utilization, kv_cache_memory), or make"
                " steps smaller (max_num_batched_tokens, max_model_len)."
            ) from error
        except RuntimeError as error:
            raise_if_lost(error)
            raise

    @classmethod
    def _load(cls, config: EngineConfig) -> "ModelRunner":
        hf_config = config_of(config.model, trust_remote_code=config.trust_remote_code)
        max_model_len = max_model_len_of(hf_config.get_text_config(), config)
        if (threads := Threads.fixed(config.num_threads)) is not None:
            threads.use(1)  # kernels are tried with as many
        draft = _load_draft(config, hf_config, max_model_len)
        model = load_model(config, hf_config, max_model_len, device_of(config))
        hidden_size = hf_config.get_text_config().hidden_size
        probes = scorer_of(config, hidden_size, model.dtype, model.device)
        return cls(model, hf_config, config, draft, probes)

    @torch.inference_mode()
    def run(self, scheduled: Sequence[Span], drawn: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The step's logits `[rows, vocab]`, float32: a tensor with a row for each of the sequences'
        `num_samples`, and a tensor with a row for each of their `prompt_logprob_positions`, in order.

        `drawn`: the tokens of the last draw, `[rows]`, for the spans that have a `drawn_row`.
        """
        self._threads.use(sum(s.num_tokens for s in scheduled))
        judges_in_graphs = self.graphs is not None and self.model.labels is not None
        max_span = MAX_JUDGED_SPAN if judges_in_graphs else MAX_SPAN
        layout = Layout.of(scheduled, self.kv_cache.block_size, max_span)
        if self.graphs is not None and self.graphs.has_room(layout):
            logits = self.graphs.run(layout, drawn).float()
        else:
            batch = Batch.of(layout, self.device, drawn)
            logits = self.model.forward(batch, self.kv_cache).float()
        num_sampled = sum(s.num_samples for s in scheduled)
        return logits[:num_sampled], logits[num_sampled:]

    def use_probes(self, probes: TokenScorer | None) -> None:
        """Have them score every token that is computed from now on, into the cache's room for the scores of
        the probes that this runner was made with. None: no token is scored. No sequence may be running."""
        self.probe_heads = probes
        self.model.watch(probes)

    @property
    def probes(self) -> tuple[ProbeInfo, ...]:
        """The probes that score tokens."""
        return () if self.probe_heads is None else self.probe_heads.infos

    @torch.inference_mode()
    def _try_threads(self, text_config: ModelConfig, config: EngineConfig) -> Threads:
        """Nothing is in the cache yet, so the trial may write there."""
        if self.device.type != "cpu":
            return Threads.all_cores()

        def run(rows: int) -> None:
            num_logits = rows if rows <= 64 else 1
            layout = longest_texts(rows, rows, num_logits, 1, self.kv_cache.block_size)
            self.model.forward(Batch.of(layout, self.device), self.kv_cache)

        sizes = text_config.num_hidden_layers, text_config.hidden_size, self.vocab_size
        options = (self.model.dtype, config.quantization, config.model_impl, config.cpu_kernels)
        what = ", ".join(map(str, (text_config.model_type, *sizes, *options)))
        return Threads.by_trial(run, what, TrialRecord.open())

    @torch.inference_mode()
    def _capture(self, max_rows: int) -> DecodeGraphs | None:
        if not self.model.can_be_captured:
            return None
        return DecodeGraphs(
            self.model.forward,
            self.kv_cache,
            max_rows=max_rows,
            max_model_len=self.max_model_len,
            capture=GraphCapture(self.device),
        )


def _load_draft(
    config: EngineConfig, target: ModelConfig, max_model_len: int
) -> tuple[Model, ModelConfig, EngineConfig] | None:
    if config.speculative_model is None:
        return None
    hf_config = config_of(config.speculative_model, trust_remote_code=config.trust_remote_code)
    if classifies_tokens(hf_config):
        raise ValueError(f"speculative_model: {config.speculative_model} classifies tokens: it guesses none.")
    text_config = hf_config.get_text_config()
    if text_config.vocab_size < target.get_text_config().vocab_size:
        raise ValueError(
            f"speculative_model: {config.speculative_model} knows {text_config.vocab_size} tokens, and the"
            f" model has {target.get_text_config().vocab_size}: both need the same vocabulary."
        )
    own_len = getattr(text_config, "max_position_embeddings", None) or max_model_len
    draft_len = min(own_len, max_model_len)
    own = {"model": config.speculative_model, "max_model_len": draft_len}
    none = {"speculative_model": None, "speculative_method": None, "num_speculative_tokens": 0}
    draft_config = config.model_copy(update=own | none)
    draft = load_model(draft_config, hf_config, draft_len, device_of(draft_config))
    return draft, hf_config, draft_config


def _block_bytes(model: Model, config: EngineConfig) -> int:
    return sum(shape.num_bytes(model.dtype) for shape in model.layers.values()) * config.block_size


def max_model_len_of(text_config: ModelConfig, config: EngineConfig) -> int:
    own: int | None = getattr(text_config, "max_position_embeddings", None)
    rope = getattr(text_config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        # Beyond this length, longrope rotates every position of the batch differently, even cached ones.
        own = int(rope["original_max_position_embeddings"])
    max_model_len = config.max_model_len or own
    if max_model_len is None:
        raise ValueError("The model does not say its longest text: set max_model_len.")
    if own is not None and max_model_len > own:
        raise ValueError(f"max_model_len is {max_model_len}, but the model was made for {own} tokens.")
    return max_model_len
