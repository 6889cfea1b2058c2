"""The names of a request's fields, as OpenAI, vLLM, SGLang and TensorRT-LLM have them.

An engine gets a request of any endpoint under the names of a chat's fields. `engine_name` and `caller_name`
translate between them and the endpoint's own names.
"""

from collections.abc import Mapping
from typing import Any

ENGINE_NAMES: Mapping[str, Mapping[str, str]] = {
    "chat": {"max_completion_tokens": "max_tokens", "top_logprobs": "logprobs"},
    "responses": {
        "max_output_tokens": "max_tokens",
        "top_logprobs": "logprobs",
        "text.format": "response_format",
        "text.verbosity": "verbosity",
        "reasoning.effort": "reasoning_effort",
    },
    "messages": {
        "stop_sequences": "stop",
        "output_config.format": "response_format",
        "output_config.effort": "reasoning_effort",
    },
}
"""By endpoint: an engine's name for a field of the endpoint. Fields that are not here keep their name."""

BINDING = frozenset(
    {
        # OpenAI
        *("audio", "modalities", "moderation", "web_search_options", "functions", "function_call"),
        *("tools", "tool_choice", "suffix", "best_of", "echo", "response_format"),
        # vLLM: which tokens come
        *("structured_outputs", "allowed_token_ids", "bad_words", "use_beam_search", "length_penalty"),
        *("repetition_detection", "thinking_token_budget", "watermarking", "logits_processors", "vllm_xargs"),
        # vLLM: the prompt
        *("add_special_tokens", "add_generation_prompt", "continue_final_message", "truncate_prompt_tokens"),
        *("truncation_side", "chat_template", "chat_template_kwargs", "documents", "media_io_kwargs"),
        *("mm_processor_kwargs", "previous_input_messages", "prompt_embeds"),
        *("kv_transfer_params", "ec_transfer_params"),
        # vLLM: what is returned
        *("skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output"),
        *("include_reasoning", "prompt_logprobs", "logprob_token_ids", "return_prompt_text"),
        *("enable_response_messages",),
        # Others
        *("regex", "ebnf", "json_schema", "grammar", "stop_regex", "custom_params", "lora_path"),
        *("custom_logit_processor", "no_stop_trim", "separate_reasoning", "return_hidden_states"),
        *("input_embeds", "input_ids", "prompt_token_ids", "session_params", "nvext", "lora_request"),
    }
)
"""Fields that change what the caller gets. An engine of its own honours or refuses each, and all whose name
begins with `guided_`."""

HINTS = frozenset(
    {
        # Cost, speed and accounts.
        *("service_tier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "prediction", "store", "stream_interval", "access_programs"),
        *("background_options", "billing_policy", "cache_control", "fallback_credit_token", "speed"),
        *("diagnostics", "fallbacks", "inference_geo", "stream_options.include_obfuscation"),
        # Agents' long conversations. A prompt that is too long is refused.
        *("context_management", "image", "output_config.task_budget", "container"),
        # Sent by agents to every model. Some chat templates read them.
        *("reasoning_effort", "verbosity", "reasoning.context", "reasoning.generate_summary"),
        *("reasoning.mode", "reasoning.summary", "thinking.block_binding"),
        # Names of a request, for logs.
        *("request_id", "rid", "session_id"),
        # vLLM's answers that are no generation.
        *("mm_payload", "return_mm_kwargs", "return_token_offsets", "routed_experts_prompt_start"),
        "stream_reasoning",
    }
)
"""Known fields that an engine may ignore: they change no text, or every client of some kind sends them. A new
field of an SDK is put here or among `BINDING`."""

DEFAULTS: Mapping[str, Any] = {
    "add_special_tokens": None,  # true for completions, false for chats
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "length_penalty": 1.0,
    "add_generation_prompt": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_reasoning": True,
    "separate_reasoning": True,
    "stream_reasoning": True,
    "truncation_side": "left",
    "watermarking": None,
    "best_of": 1,
    "routed_experts_prompt_start": 0,
}
"""Values that ask for nothing. For all other fields: false, an empty text, an empty list or object."""


def engine_name(endpoint: str, name: str) -> str:
    """An engine's name for a field of the endpoint. A part of an object has a dotted name: `text.format`."""
    return ENGINE_NAMES.get(endpoint, {}).get(name, name)


def caller_name(endpoint: str, name: str) -> str:
    """The endpoint's name for a field of an engine. In a chat, all names are the same."""
    names = {} if endpoint == "chat" else ENGINE_NAMES.get(endpoint, {})
    return next((own for own, engines in names.items() if engines == name), name)


def is_binding(name: str) -> bool:
    """Whether the field changes what the caller gets."""
    return name in BINDING or name.startswith("guided_")


def is_known(name: str) -> bool:
    """Whether the field is listed here, so that `is_neutral` knows which values ask for nothing."""
    return name in HINTS or name in DEFAULTS or is_binding(name)


def is_neutral(name: str, value: Any) -> bool:
    """Whether the value asks for nothing: a null, or the field's default."""
    if value is None:
        return True
    if name in DEFAULTS:
        return bool(value == DEFAULTS[name]) and isinstance(value, bool) is isinstance(DEFAULTS[name], bool)
    if name.startswith("guided_"):  # an empty schema asks for JSON
        return value is False
    return value is False or (isinstance(value, str | list | tuple | dict) and not value)
