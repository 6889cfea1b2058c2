"""Runs any decoder-only architecture of transformers by transformers' own code, over Weir's paged cache.

A model of transformers calls its attention function by name (`AttentionInterface`), with queries, keys and
values after rotary embedding. This module registers such a function. The function calls the keyword argument
`attend`, which reaches it through the model's `**kwargs`: an `Attention` in a step, a probe at load.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from accelerate import init_empty_weights
from accelerate.utils import set_module_tensor_to_device
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from engine.device.attention import AttentionBackend, PagedAttention, Scoring
from engine.device.batch import Batch
from engine.device.capture import Capture, check_layers
from engine.device.kv_cache import KVCache, LayerShape
from engine.models.checkpoint import Checkpoint
from engine.models.heads import Labels, classifies_tokens
from engine.protocol.options import EngineConfig
from engine.sources.names import located

IMPLEMENTATION = "weir_paged"
"""The `attn_implementation` that models are loaded with. It has no mask function, so models make no mask."""
NO_INTERFACE = "its attention does not go through transformers' AttentionInterface"
SERVED_LAYERS = {"full_attention", "sliding_attention"}
HONOURED = ("scaling", "sliding_window", "softcap", "s_aux")
"""Arguments of the attention function that `Scoring` has."""
REFUSED = ("position_bias", "head_mask", "block_mask")
"""Arguments that would change the result. Any other argument is information only."""


class TransformersModel:
    """Implements `Model` (`engine.models.load`). Raises `ValueError`, with the reason, for a model
    that it cannot serve."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self.layers = _probe(model)
        self.labels: Labels | None = None
        self.can_be_captured = False  # its code may depend on more than the batch's size
        self.attention: AttentionBackend = PagedAttention
        self._capture: Capture | None = None
        self._watched: list[RemovableHandle] = []

    @classmethod
    def load(
        cls,
        config: EngineConfig,
        hf_config: PreTrainedConfig,
        device: torch.device,
        checkpoint: Checkpoint | None,
    ) -> "TransformersModel":
        """`checkpoint`: the tensors, where transformers does not read the model's files itself."""
        _check_architecture(hf_config)
        try:
            if device.type == "meta":
                return cls(_without_numbers(config, hf_config))
            if checkpoint is not None:
                with checkpoint:
                    return cls(_filled(hf_config, checkpoint, device))
            model = AutoModelForCausalLM.from_pretrained(
                located(config.model),
                dtype=config.dtype if config.dtype == "auto" else getattr(torch, config.dtype),
                device_map=str(device),
                attn_implementation=IMPLEMENTATION,
                trust_remote_code=config.trust_remote_code,
            )
        except KeyError as error:
            if IMPLEMENTATION not in error.args:
                raise
            raise _refusal(config.model, NO_INTERFACE) from error
        return cls(model)

    def watch(self, capture: Capture | None) -> None:
        modules = dict(self.model.named_modules())
        if capture is not None:
            check_layers(capture, modules)
        for handle in self._watched:
            handle.remove()
        self._watched.clear()
        self._capture = capture
        if capture is not None:
            for name in capture.layers:
                give = partial(_give, capture, name)
                self._watched.append(modules[name].register_forward_hook(give))

    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        if self._capture is not None:
            self._capture.begin(batch, kv_cache)
        attention = self.attention(kv_cache, batch)

        def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
            query, key, value = (t[0].transpose(0, 1) for t in (query, key, value))
            return attention(layer_index(module), query, key, value, Scoring(**options)).unsqueeze(0)

        output = self.model(
            input_ids=batch.token_ids.unsqueeze(0),
            position_ids=batch.positions.unsqueeze(0),
            use_cache=False,
            logits_to_keep=batch.logit_rows,
            attend=attend,
        )
        logits: Tensor = output.logits[0]
        return logits


def _without_numbers(config: EngineConfig, hf_config: PreTrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            hf_config, attn_implementation=IMPLEMENTATION, trust_remote_code=config.trust_remote_code
        )
    return model


@torch.inference_mode()
def _filled(hf_config: PreTrainedConfig, checkpoint: Checkpoint, device: torch.device) -> PreTrainedModel:
    """A model with the checkpoint's tensors, read one by one. Raises `ValueError` unless all of both fit."""
    with init_empty_weights(include_buffers=False):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            hf_config, dtype=checkpoint.dtype, attn_implementation=IMPLEMENTATION
        )
    for name in model.state_dict():
        if name in checkpoint:
            set_module_tensor_to_device(model, name, device, checkpoint.take(name))
    model.tie_weights()
    missing = [name for name, tensor in model.named_parameters() if tensor.is_meta]
    if missing or checkpoint.unread:
        names = ", ".join([*missing, *sorted(checkpoint.unread)][:3])
        raise _refusal(hf_config.model_type, f"its tensors are not those of the architecture ({names})")
    for name, buffer in model.named_buffers():
        set_module_tensor_to_device(model, name, device, buffer)
    model.eval()
    return model


def _give(capture: Capture, name: str, module: nn.Module, inputs: object, output: Any) -> None:
    hidden = output[0] if isinstance(output, tuple) else output
    capture.take(name, hidden[0].clone())  # some models write to it afterwards


def _check_architecture(config: PreTrainedConfig) -> None:
    text_config = config.get_text_config()
    layer_types = set(getattr(text_config, "layer_types", None) or ()) - SERVED_LAYERS
    reason = None
    if classifies_tokens(config):  # its class would make up a matrix for the next token's logits
        reason = "models that classify tokens need Weir's own decoder"
    elif config.is_encoder_decoder:
        reason = "it is an encoder-decoder"
    elif layer_types:
        reason = f"it has layers of {', '.join(sorted(layer_types))}"
    elif getattr(text_config, "num_kv_shared_layers", None):
        reason = "its layers share keys and values"
    if reason:
        raise _refusal(type(config).__name__, reason)


def _refusal(name: str, reason: object) -> ValueError:
    return ValueError(f"This engine cannot serve {name}: {reason}.")


@torch.inference_mode()
def _probe(model: PreTrainedModel) -> dict[int, LayerShape]:
    """Each attention layer's shape, as a forward of one token shows it: configurations are not reliable.
    Empty on torch's device `meta`, where not every model can run."""
    name = type(model).__name__
    if not model._supports_attention_backend or getattr(model, "_is_stateful", False):
        raise _refusal(name, NO_INTERFACE)
    missing = {"position_ids", "logits_to_keep"} - set(inspect.signature(model.forward).parameters)
    if missing:
        raise _refusal(name, f"its forward takes no {' and no '.join(sorted(missing))}")
    layers: dict[int, LayerShape] = {}
    if model.device.type == "meta":
        return layers

    def attend(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        layers[layer_index(module)] = LayerShape(key.shape[1], key.shape[3], value.shape[3])
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])

    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    try:
        model(input_ids=token, position_ids=token, use_cache=False, logits_to_keep=token[0], attend=attend)
    except (TypeError, NotImplementedError) as error:
        raise _refusal(name, error) from error
    if len(layers) != model.config.get_text_config().num_hidden_layers:
        raise _refusal(name, f"{len(layers)} of its layers attend by AttentionInterface")
    return layers


def layer_index(module: nn.Module) -> int:
    index = getattr(module, "layer_idx", None)
    if not isinstance(index, int):
        raise TypeError(f"{type(module).__name__} has no layer_idx")
    return index


def _attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attend: Callable[..., Tensor] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if attend is None:
        raise NotImplementedError(f"{type(module).__name__} is not given the model's extra arguments")
    if attention_mask is not None or any(kwargs.get(name) is not None for name in REFUSED):
        raise NotImplementedError(f"{type(module).__name__} asks for more than causal attention")
    if not kwargs.get("is_causal", getattr(module, "is_causal", True)):
        raise NotImplementedError(f"{type(module).__name__} is not causal")
    return attend(module, query, key, value, **{k: kwargs[k] for k in HONOURED if k in kwargs}), None


AttentionInterface.register(IMPLEMENTATION, _attention_forward)
