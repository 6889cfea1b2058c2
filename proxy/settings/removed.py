"""The options that Weir had. A message about such an option says what does its work now."""

_BODIES = "the bound is a constant in proxy/settings/requests.py; max_body_size bounds bodies"
_UPSTREAM = "the bound is a constant in engine/upstream/limits.py"
_CLIENTS = "client_timeout is one limit for bodies, answers and idle connections"
_CONNECTIONS = "the limit is a constant in proxy/settings/network.py"
_CHOSEN = "the engine chooses by itself"

REMOVED = {
    **dict.fromkeys(
        (
            *("max_json_values", "max_json_objects", "max_fields", "max_messages", "max_content_parts"),
            *("max_tools", "max_prompts", "max_outputs", "max_stop_strings", "max_logit_bias"),
            *("max_metadata", "max_metadata_key", "max_metadata_value"),
            *("max_schema_size", "max_schema_branches"),
        ),
        _BODIES,
    ),
    "max_body_bytes_per_caller": "it is 256 MiB; max_requests_per_caller bounds a caller's requests",
    "max_connections_per_address": "it is half of max_connections",
    "max_unfinished_bodies": _CONNECTIONS,
    "header_timeout": _CONNECTIONS,
    "body_idle_timeout": _CONNECTIONS,
    "body_timeout": _CLIENTS,
    "idle_timeout": _CLIENTS,
    "unread_timeout": _CLIENTS,
    "ssl_cert_reqs": "with ssl_ca_certs each client must show a certificate, without it none",
    "max_upstream_event": _UPSTREAM,
    "max_upstream_output": _UPSTREAM,
    "max_upstream_answer": _UPSTREAM,
    "upstream_version": "every request has anthropic-version 2023-06-01",
    "upstream_health_interval": "upstreams are asked every 10 seconds",
    "quantization_group_size": "int4 has groups of 32",
    "cpu_kernels": f"{_CHOSEN}: kernels in C if there is a compiler",
    "attention_backend": f"{_CHOSEN}: the first backend that passes a trial at start",
    "model_impl": f"{_CHOSEN}: its own code for the families that it knows",
    "async_scheduling": f"{_CHOSEN}: on CUDA; for vLLM it is vllm_async_scheduling",
    "enforce_eager": f"{_CHOSEN}: CUDA graphs on CUDA; for vLLM it is vllm_enforce_eager",
    "max_num_prefill_tokens": "the engine learns how many prompt tokens a step may have",
    "block_size": "blocks have 16 tokens; for vLLM it is vllm_block_size",
    "prompt_lookup_min": "num_speculative_tokens turns the lookup on",
    "prompt_lookup_max": "num_speculative_tokens turns the lookup on",
    "speculative_method": "speculative_model guesses where the lookup in the text finds nothing",
    "tokenizer_pool_size": "two long prompts are tokenized at a time",
    "decisions_min_held": "holds of less than a second are only counted",
    "decisions_max_rows": "the store keeps a million; decisions_max_age limits their age",
    "store_timeout": "the store has 5 seconds to answer",
    "state_timeout": "the state has 2 seconds to answer",
    "max_stored_responses_per_caller": "it is a tenth of max_stored_responses",
    "max_stored_bytes": "it follows from max_stored_responses",
    "max_stored_bytes_per_caller": "it follows from max_stored_responses",
    "keep_alive_interval": "a silent stream gets a comment line every 15 seconds",
    "skip_tokenizer_init": "it would leave hooks without text to look at",
}
"""Each option with the end of the message about it."""


def what_replaces(name: str) -> str:
    """The end of a message about an unknown option: empty if Weir never had one of this name."""
    instead = REMOVED.get(name.removeprefix("--").replace("-", "_"))
    return "" if instead is None else f" any more: {instead}"
