"""The guard models while they are trained: a Qwen3 body with the heads of Qwen3Guard-Stream, in plain torch.

The names and shapes of the heads are those of Qwen3Guard-Stream (arXiv 2510.14276). The saved folder loads
like its checkpoints.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3Model

from tools.demo.guards.exchanges import CATEGORIES, RISKS

CONTEXT = 1024
INNER = 64


def body_config(tokenizer: PreTrainedTokenizerBase) -> Qwen3Config:
    """A body of 0.85 million parameters."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


class Head(nn.Module):
    """One of the two pairs of heads: a risk level and a category for each token."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.category_pre = nn.Linear(hidden_size, INNER, bias=False)
        self.category_layernorm = nn.RMSNorm(INNER, eps)
        self.head = nn.Linear(INNER, len(RISKS), bias=False)
        self.category_head = nn.Linear(INNER, len(CATEGORIES), bias=False)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """`hidden`: `[..., hidden_size]`. Returns logits `[..., risks]` and `[..., categories]`."""
        inner = self.category_layernorm(self.category_pre(hidden))
        return self.head(inner), self.category_head(inner)


class GuardModel(nn.Module):
    """The body, the heads for replies and the heads for prompts."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.config = config
        self.model = Qwen3Model(config)
        self.reply = Head(config.hidden_size, config.rms_norm_eps)
        self.query = Head(config.hidden_size, config.rms_norm_eps)

    def forward(self, **inputs: Tensor) -> Tensor:
        """The body's last hidden states, `[rows, tokens, hidden_size]`."""
        states: Tensor = self.model(**inputs, use_cache=False).last_hidden_state
        return states

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by the names that a checkpoint has."""
        named = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for prefix, head in (("", self.reply), ("query_", self.query)):
            for name, value in head.state_dict().items():
                if name == "category_head.weight":
                    named[f"{prefix}category_head.weight"] = value
                else:
                    named[f"{prefix}risk_level_{name}"] = value
        return {name: value.half().contiguous() for name, value in named.items()}


def save(model: GuardModel, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Write a folder in the form of Qwen3Guard-Stream's. Weights are float16, and are computed in float32."""
    out.mkdir(parents=True, exist_ok=True)
    levels = {str(i): name for i, name in enumerate(RISKS)}
    categories = {str(i): name for i, name in enumerate(CATEGORIES)}
    more: dict[str, Any] = {
        "architectures": ["Qwen3ForGuardModel"],
        "dtype": "float32",
        "guard_inner_size": INNER,
        "num_risk_level": len(RISKS),
        "num_query_risk_level": len(RISKS),
        "num_category": len(CATEGORIES),
        "num_query_category": len(CATEGORIES),
        "response_risk_level_map": levels,
        "query_risk_level_map": levels,
        "response_category_map": categories,
        "query_category_map": categories,
    }
    model.config.update(more)
    weights = out / "model.safetensors"
    save_file(model.tensors(), weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    model.config.save_pretrained(out)
    tokenizer.save_pretrained(out)


@torch.no_grad()
def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
