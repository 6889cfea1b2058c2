"""Loads a model: chooses whose code runs it, its type, its device and its attention."""

import ctypes
import logging
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from engine.device.attention import AttentionBackend, PagedAttention
from engine.device.batch import Batch
from engine.device.capture import Capture
from engine.device.cuda import check_capability
from engine.device.kernels.choice import choose_attention, make_kernels
from engine.device.kernels.probe import AttentionNeeds
from engine.device.kernels.protocol import Kernels, LinearMaker
from engine.device.kv_cache import KVCache, LayerShape
from engine.device.trials import TrialRecord
from engine.models.checkpoint import Checkpoint, SafetensorsCheckpoint
from engine.models.decoder import Decoder, DecoderConfig
from engine.models.gguf_checkpoint import GgufCheckpoint
from engine.models.heads import ClassificationHeads, Labels, classifies_tokens
from engine.models.linear import make_linear, torch_linear
from engine.models.linear_trial import LinearTrial
from engine.models.packed import PackedWeights, UnsupportedPackingError
from engine.models.quantized_trial import log_speed
from engine.models.weights import PlainWeights, weight_format
from engine.protocol.options import EngineConfig
from engine.protocol.parts import load as load_part
from engine.sources.files import transformers_config_of
from engine.sources.gguf_file import GgufFile
from engine.sources.model_config import ModelConfig
from engine.sources.names import is_gguf, located

logger = logging.getLogger("weir.engine")


class Model(Protocol):
    """Weights on a device, and the code that turns a batch of tokens into logits: the next token's, or those
    of labels."""

    device: torch.device
    dtype: torch.dtype
    layers: dict[int, LayerShape]
    """The shape of the keys and values that each attention layer stores for a token."""
    labels: Labels | None
    """The labels that the logits are of. None: the logits are the next token's."""
    can_be_captured: bool
    """Whether CUDA graphs can hold `forward`: what it launches depends on nothing but the batch's size."""

    def watch(self, capture: Capture | None) -> None:
        """Give `capture`, and no other, the outputs of its layers in every `forward` from now on. None: give
        them to nobody. Raises `ValueError` for a layer that the model does not have."""

    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        """Store the tokens' keys and values in the cache. Returns the logits of `batch.logit_rows`,
        `[rows, vocab]` or `[rows, labels of all groups]`, in any float type."""


def device_of(config: EngineConfig) -> torch.device:
    """The device that the model runs on. Raises `ValueError` for a GPU that is not there or too old."""
    is_gpu = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda" if is_gpu else "cpu")
    check_capability(device)
    return device


def load_model(
    config: EngineConfig, hf_config: ModelConfig, max_model_len: int, device: torch.device
) -> Model:
    """Load `config.model`, whose configuration in transformers' form is `hf_config`, to `device`. On torch's
    device `meta`, the weights have shapes and no numbers. Raises `ValueError` if the engine cannot serve the
    model as `config` asks, `OSError` if the model is not found."""
    if config.model_impl != "transformers":
        try:
            return _load_decoder(config, hf_config, max_model_len, device)
        except (KeyError, ValueError) as error:
            reason = f"tensor {error} is missing" if isinstance(error, KeyError) else str(error)
            is_wanted = config.model_impl == "weir" or isinstance(error, UnsupportedPackingError)
            is_wanted = is_wanted or classifies_tokens(hf_config)
            if is_wanted or config.quantization or config.cpu_kernels == "native":
                raise ValueError(f"Weir's own decoder cannot run {config.model}: {reason}.") from error
            logger.info("transformers' code runs this model: %s", reason)
    elif config.quantization is not None:
        raise ValueError("quantization needs Weir's own decoder: model_impl must not be transformers.")

    # The import takes seconds, and Weir's own decoder does not need it.
    from engine.models.transformers_model import TransformersModel

    dtype = _dtype(config, hf_config)
    checkpoint = open_checkpoint(config.model, dtype, device, keeps=False) if is_gguf(config.model) else None
    own_config = transformers_config_of(config.model, trust_remote_code=config.trust_remote_code)
    model = TransformersModel.load(config, own_config, device, checkpoint)
    _give_back_freed_memory()
    model.attention = _attention(model, config, hf_config)
    return model


def _load_decoder(
    config: EngineConfig, hf_config: ModelConfig, max_model_len: int, device: torch.device
) -> Model:
    """Raises `ValueError` or `KeyError` for a model outside the decoder's family."""
    decoder_config = DecoderConfig.of(hf_config, max_model_len, device)
    if decoder_config is None:
        raise ValueError("it is not of the family that the decoder knows")
    weights = weight_format(config, hf_config)
    if device.type == "cuda" and not isinstance(weights, PlainWeights):
        raise UnsupportedPackingError(
            "weights of 8 or 4 bits run on a CPU only; on CUDA, serve a checkpoint that has them by"
            " --engine vllm"
        )
    dtype = _dtype(config, hf_config)
    if isinstance(weights, PackedWeights) and device.type == "cpu":
        dtype = _dtype_on_cpu(config, dtype)
    shape = decoder_config.attention
    stored = frozenset({LayerShape(shape.num_kv_heads, shape.head_dim, shape.head_dim)})
    windows = frozenset(decoder_config.windows)
    needs = AttentionNeeds(shape.num_heads, stored, windows, config.block_size, dtype, device)
    kernels = make_kernels(config.cpu_kernels, config.attention_backend, shape, needs)
    keeps = bool(kernels.linears)
    with torch.inference_mode(), open_checkpoint(config.model, dtype, device, keeps=keeps) as checkpoint:
        maker = _linear_maker(config, kernels, dtype, device)
        make = partial(make_linear, maker=maker)
        heads = _classification_heads(hf_config) if classifies_tokens(hf_config) else None
        decoder = Decoder(decoder_config, checkpoint, kernels, weights, make, heads)
    _give_back_freed_memory()
    return decoder


def open_checkpoint(model: str, dtype: torch.dtype, device: torch.device, *, keeps: bool) -> Checkpoint:
    """`keeps`: see `GgufCheckpoint`. Raises `ValueError` for a model without files that Weir reads."""
    path = located(model)
    if path.is_file():
        return GgufCheckpoint(GgufFile(path), dtype, device, keeps=keeps)
    return SafetensorsCheckpoint.of(path, dtype, device)


def _classification_heads(hf_config: ModelConfig) -> ClassificationHeads:
    """Raises `ValueError` if the configuration lacks the labels, or if there is no code for such heads."""
    make = load_part(
        "engine.models.classification_heads:classification_heads", "the code of models that classify tokens"
    )
    heads: ClassificationHeads = make(hf_config)
    return heads


def _give_back_freed_memory() -> None:
    """Laying out weights frees as much memory as they take, and glibc keeps most of it."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _linear_maker(
    config: EngineConfig, kernels: Kernels, dtype: torch.dtype, device: torch.device
) -> LinearMaker:
    if device.type != "cpu":
        return torch_linear
    makers = {**kernels.linears, "torch": torch_linear}
    record = TrialRecord.open()
    if config.quantization is not None and kernels.linears:
        log_speed(config.quantization, config.quantization_group_size, makers, dtype, record)
    elif config.quantization is not None:
        logger.warning("%s saves memory and no time here: no kernels in C run", config.quantization)
    return LinearTrial(
        makers, dtype, record, batch_invariant=config.batch_invariant, in_one_order=kernels.linears
    )


def _attention(model: Model, config: EngineConfig, hf_config: ModelConfig) -> AttentionBackend:
    text_config = hf_config.get_text_config()
    needs = AttentionNeeds(
        text_config.num_attention_heads,
        frozenset(model.layers.values()),
        frozenset({None, getattr(text_config, "sliding_window", None)}),
        config.block_size,
        model.dtype,
        model.device,
    )
    return choose_attention(config.attention_backend, needs) or PagedAttention


def _dtype(config: EngineConfig, hf_config: ModelConfig) -> torch.dtype:
    """float32 if neither configuration names a type."""
    name = hf_config.dtype if config.dtype == "auto" else config.dtype
    dtype: torch.dtype = getattr(torch, name) if isinstance(name, str) else name or torch.float32
    return dtype


def _dtype_on_cpu(config: EngineConfig, dtype: torch.dtype) -> torch.dtype:
    """AWQ and GPTQ checkpoints name float16, for which a CPU has no kernels."""
    return torch.bfloat16 if config.dtype == "auto" and dtype == torch.float16 else dtype
