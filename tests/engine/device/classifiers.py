"""Models with random weights that classify tokens, and their logits by a plain reference."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import Qwen3Config, Qwen3Model

from tests.engine.device.decoders import SIZES

GUARD_LABELS = {
    "risk_level": ("Safe", "Unsafe", "Controversial"),
    "category": tuple(f"category {i}" for i in range(8)),
    "query_risk_level": ("Safe", "Unsafe", "Controversial"),
    "query_category": tuple(f"query category {i}" for i in range(9)),
}
"""As many as the published checkpoints have."""
MAPS = {
    "response_risk_level_map": "risk_level",
    "response_category_map": "category",
    "query_risk_level_map": "query_risk_level",
    "query_category_map": "query_category",
}
INNER = 20


@dataclass(frozen=True)
class GuardModel:
    """A model in the shape of Qwen3Guard-Stream."""

    path: Path
    body: Any
    heads: Mapping[str, Tensor]

    def logits(self, ids: Sequence[int]) -> Tensor:
        """The logits of each token, as the published code has them: `[tokens, labels of all groups]`."""
        with torch.inference_mode():
            x = self.body(torch.tensor([ids])).last_hidden_state[0]
            return torch.cat([self._pair(x, ""), self._pair(x, "query_")], dim=1)

    def _pair(self, x: Tensor, prefix: str) -> Tensor:
        x = x @ self.heads[f"{prefix}risk_level_category_pre.weight"].T
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.body.config.rms_norm_eps)
        x = x * self.heads[f"{prefix}risk_level_category_layernorm.weight"]
        heads = (self.heads[f"{prefix}{group}_head.weight"] for group in ("risk_level", "category"))
        return torch.cat([x @ head.T for head in heads], dim=1)


def save_guard(path: Path, **sizes: Any) -> GuardModel:
    """Save a guard model with random weights in `path`. `sizes`: as in `Qwen3Config`."""
    torch.manual_seed(5)
    maps = {
        name: {str(i): label for i, label in enumerate(GUARD_LABELS[group])} for name, group in MAPS.items()
    }
    further: dict[str, Any] = {**maps, "guard_inner_size": INNER}
    config = Qwen3Config(**SIZES | {"tie_word_embeddings": True} | sizes, **further)
    body = Qwen3Model._from_config(config, attn_implementation="eager").eval()
    for name, parameter in body.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    heads = {}
    for prefix in ("", "query_"):
        heads[f"{prefix}risk_level_category_pre.weight"] = torch.randn(INNER, config.hidden_size) * 0.3
        heads[f"{prefix}risk_level_category_layernorm.weight"] = 1 + torch.randn(INNER) * 0.2
        for group in (f"{prefix}risk_level", f"{prefix}category"):
            heads[f"{group}_head.weight"] = torch.randn(len(GUARD_LABELS[group]), INNER) * 0.5
    path.mkdir(parents=True, exist_ok=True)
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in body.state_dict().items()}
    save_file(tensors | heads, path / "model.safetensors")
    published = {"architectures": ["Qwen3ForGuardModel"], "model_type": "qwen3", "dtype": "float32"}
    (path / "config.json").write_text(json.dumps(config.to_dict() | published))
    return GuardModel(path, body, heads)
