"""The names of the logits processors of a server. Imports none of them."""

from collections.abc import Iterable
from importlib.metadata import entry_points

from engine.protocol.options import LogitsProcessorConfig

ENTRY_POINTS = "weir.logits_processors"
"""The group in which installed packages name their processors."""


OTHER_FIELDS = ("vllm_xargs", "custom_params")
"""The fields of `GenerationRequest.extra` that vLLM and SGLang use."""
PARAMETER_FIELDS = {"thinking_token_budget": "thinking_budget"}
"""vLLM's fields that are a parameter of one registered processor: its name. vLLM's -1 asks for nothing."""


def names_of_processors(configs: Iterable[LogitsProcessorConfig]) -> list[str]:
    """The names of the configured processors, then of those of installed packages."""
    installed = [point.name for point in entry_points(group=ENTRY_POINTS)]
    return [*(config.name for config in configs), *installed]
