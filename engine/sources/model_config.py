"""A model's configuration in the form of transformers, read without transformers where it can be."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FAMILY = {"llama", "mistral", "qwen2", "qwen3"}
"""Values of `model_type` in transformers' configurations: the family of Weir's own decoder."""
ROPE_FREQUENCIES = "rope_frequencies"
"""The field of a kept configuration for what transformers computes from the others
(`engine.sources.transformers_files.rope_frequencies`). None: they are the plain ones."""


class KeptConfig:
    """The fields of a configuration of transformers, for a model of `FAMILY`."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.model_type: str = fields["model_type"]
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the configuration of a {self.model_type} has no {name}")

    def get_text_config(self) -> "KeptConfig":
        return self


ModelConfig = Union["PreTrainedConfig", KeptConfig]
