"""The fields that vLLM's requests have beyond those of the SDKs.

They are read from vLLM's classes, since vLLM is not installed where the pages are made. A test compares them
with the installed vLLM.
"""

VERSION = "0.32.0"

_ALL = {"top_k", "cache_salt", "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "watermarking"}
_ALL |= {"mm_payload", "return_mm_kwargs"}
_OPENAI = {
    *("min_p", "repetition_penalty", "stop_token_ids", "include_stop_str_in_output", "ignore_eos"),
    *("skip_special_tokens", "structured_outputs", "priority", "request_id", "session_id"),
}
_GENERATIONS = {
    *("use_beam_search", "length_penalty", "min_tokens", "spaces_between_special_tokens"),
    *("truncate_prompt_tokens", "truncation_side", "prompt_logprobs", "logprob_token_ids"),
    *("allowed_token_ids", "bad_words", "add_special_tokens", "return_tokens_as_token_ids"),
    *("return_token_ids", "routed_experts_prompt_start", "return_token_offsets", "thinking_token_budget"),
    *("repetition_detection", "stream_interval", "stream_options.continuous_usage_stats"),
}
VLLM_FIELDS: dict[str, set[str]] = {
    "chat": {
        *(_ALL | _OPENAI | _GENERATIONS),
        *("include_reasoning", "echo", "add_generation_prompt", "continue_final_message", "documents"),
        *("chat_template", "chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs"),
        "return_prompt_text",
    },
    "completions": {*(_ALL | _OPENAI | _GENERATIONS), "prompt_embeds", "response_format"},
    "responses": {
        *(_ALL | _OPENAI),
        *("logit_bias", "include_reasoning", "presence_penalty", "frequency_penalty", "media_io_kwargs"),
        *("mm_processor_kwargs", "enable_response_messages", "previous_input_messages", "seed", "stop"),
        "chat_template_kwargs",
    },
    "messages": {*_ALL, "temperature", "top_p", "chat_template_kwargs"},
}
"""By endpoint."""
