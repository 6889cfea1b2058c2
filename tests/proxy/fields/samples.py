"""A value for each field that a client can send. Each asks for something: none is a default."""

from dataclasses import dataclass, field
from typing import Any

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL_TOOL = {"type": "function", "function": {"name": "look"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA, "strict": True}}
PROCESSOR = {"fails": {"how": "raise", "after": 1000}}
PREVIOUS = "the id of an earlier response"


@dataclass(frozen=True)
class Sample:
    value: Any
    beside: dict[str, Any] = field(default_factory=dict)
    """Other fields that the field needs."""
    relayed: dict[str, Any] = field(default_factory=dict)
    """What an upstream gets of it. By default: the same value, by the name that engines use."""


_OF_ALL: dict[str, Sample] = {
    "access_programs": Sample({"cyber": "standard"}),
    "add_generation_prompt": Sample(False),
    "add_special_tokens": Sample(True),
    "allowed_token_ids": Sample([5, 6, 7]),
    "audio": Sample({"voice": "alloy", "format": "wav"}),
    "background": Sample(True),
    "background_options": Sample({"completion_window": "2h"}),
    "bad_words": Sample(["weir"]),
    "best_of": Sample(2),
    "billing_policy": Sample({"type": "billing_policy", "bill_to": "user_profile"}),
    "cache_control": Sample({"type": "ephemeral"}),
    "cache_salt": Sample("salt"),
    "chat_template": Sample("{{ 1 }}"),
    "chat_template_kwargs": Sample({"enable_thinking": False}),
    "compaction": Sample({"type": "compaction"}),
    "container": Sample("container_1"),
    "context_management": Sample([{"type": "compaction", "compact_threshold": 1000}]),
    "continue_final_message": Sample(
        True, {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So"}]}
    ),
    "conversation": Sample("conv_1"),
    "detokenize": Sample(False),
    "diagnostics": Sample({"previous_message_id": "msg_1"}),
    "documents": Sample([{"title": "a", "text": "b"}]),
    "ec_transfer_params": Sample({"a": 1}),
    "echo": Sample(True),
    "enable_response_messages": Sample(True),
    "fallback_credit_token": Sample("token"),
    "fallbacks": Sample("default"),
    "frequency_penalty": Sample(0.5),
    "function_call": Sample("auto", {"functions": [{"name": "look"}]}),
    "functions": Sample([{"name": "look"}]),
    "hooks": Sample(["observer"]),
    "ignore_eos": Sample(True),
    "image": Sample({"context_compression": "disabled"}),
    "include": Sample(["message.output_text.logprobs"]),
    "include_reasoning": Sample(False),
    "include_stop_str_in_output": Sample(True),
    "inference_geo": Sample("us"),
    "input": Sample("Something else"),
    "instructions": Sample("Be brief."),
    "kv_transfer_params": Sample({"a": 1}),
    "length_penalty": Sample(1.5, {"use_beam_search": True}),
    "logit_bias": Sample({"7": -3}),
    "logits_processors": Sample([{"name": "fails", "params": PROCESSOR["fails"]}]),
    "logprob_token_ids": Sample([5], {"logprobs": True}),
    "logprobs": Sample(True),
    "max_completion_tokens": Sample(2, relayed={"max_tokens": 2}),
    "max_output_tokens": Sample(2, relayed={"max_tokens": 2}),
    "max_tokens": Sample(2),
    "max_tool_calls": Sample(3),
    "mcp_servers": Sample([{"type": "url", "url": "https://example.com", "name": "a"}]),
    "media_io_kwargs": Sample({"image": {"num_frames": 1}}),
    "messages": Sample([{"role": "user", "content": "Something else"}]),
    "metadata": Sample({"team": "blue"}),
    "metadata.user_id": Sample("u1"),
    "min_p": Sample(0.1),
    "min_tokens": Sample(1),
    "mm_payload": Sample("none"),
    "mm_processor_kwargs": Sample({"a": 1}),
    "modalities": Sample(["text", "audio"]),
    "model": Sample("other"),
    "moderation": Sample({"model": "omni-moderation-latest"}),
    "n": Sample(2),
    "output_config.effort": Sample("low", relayed={"reasoning_effort": "low"}),
    "output_config.format": Sample(
        {"type": "json_schema", "schema": SCHEMA}, relayed={"response_format": FORMAT}
    ),
    "output_config.task_budget": Sample({"type": "tokens", "total": 1000}),
    "parallel_tool_calls": Sample(False, {"tools": [TOOL]}),
    "prediction": Sample({"type": "content", "content": "a"}),
    "presence_penalty": Sample(0.5),
    "previous_input_messages": Sample([{"role": "user", "content": "a"}]),
    "previous_response_id": Sample(PREVIOUS),
    "priority": Sample(3),
    "prompt": Sample("Something else"),
    "prompt_cache_key": Sample("key"),
    "prompt_cache_options": Sample({"mode": "explicit"}),
    "prompt_cache_retention": Sample("24h"),
    "prompt_embeds": Sample("AAAA"),
    "prompt_logprobs": Sample(1),
    "reasoning.context": Sample("auto"),
    "reasoning.effort": Sample("low", relayed={"reasoning_effort": "low"}),
    "reasoning.generate_summary": Sample("auto"),
    "reasoning.mode": Sample("auto"),
    "reasoning.summary": Sample("auto"),
    "reasoning_effort": Sample("low"),
    "repetition_detection": Sample({"max_pattern_size": 4}),
    "repetition_penalty": Sample(1.1),
    "request_id": Sample("r1"),
    "response_format": Sample(FORMAT),
    "return_mm_kwargs": Sample(True),
    "return_prompt_text": Sample(True),
    "return_token_ids": Sample(True),
    "return_token_offsets": Sample(True),
    "return_tokens_as_token_ids": Sample(True, {"logprobs": True}),
    "routed_experts_prompt_start": Sample(1),
    "safety_identifier": Sample("u1"),
    "seed": Sample(7),
    "service_tier": Sample("auto"),
    "session_id": Sample("s1"),
    "skip_special_tokens": Sample(False),
    "spaces_between_special_tokens": Sample(False),
    "speed": Sample("fast"),
    "stop": Sample(["x"]),
    "stop_sequences": Sample(["x"], relayed={"stop": ["x"]}),
    "stop_token_ids": Sample([7]),
    "store": Sample(True),
    "stream": Sample(True),
    "stream_interval": Sample(4),
    "stream_options.continuous_usage_stats": Sample(True, {"stream": True}),
    "stream_options.include_obfuscation": Sample(True, {"stream": True}),
    "stream_options.include_usage": Sample(True, {"stream": True}),
    "structured_outputs": Sample({"choice": ["a", "b"]}),
    "suffix": Sample(" the end"),
    "system": Sample("Be brief."),
    "temperature": Sample(0.7),
    "text.format": Sample(
        {"type": "json_schema", "name": "output", "schema": SCHEMA, "strict": True},
        relayed={"response_format": FORMAT},
    ),
    "text.verbosity": Sample("low", relayed={"verbosity": "low"}),
    "thinking.block_binding": Sample("strict", {"thinking": {"type": "adaptive"}}),
    "thinking.budget_tokens": Sample(1024, {"thinking": {"type": "enabled"}, "max_tokens": 2000}),
    "thinking.display": Sample("omitted", {"thinking": {"type": "adaptive"}}),
    "thinking.type": Sample("disabled"),
    "thinking_token_budget": Sample(10),
    "thread": Sample({"type": "create"}),
    "tool_choice": Sample("none", {"tools": [TOOL]}),
    "tools": Sample([TOOL]),
    "top_k": Sample(5),
    "top_logprobs": Sample(2, {"logprobs": True}, relayed={"top_logprobs": 2}),
    "top_p": Sample(0.5),
    "truncate_prompt_tokens": Sample(3),
    "truncation": Sample("auto"),
    "truncation_side": Sample("right", {"truncate_prompt_tokens": 3}),
    "use_beam_search": Sample(True),
    "user": Sample("u1"),
    "verbosity": Sample("low"),
    "vllm_xargs": Sample(PROCESSOR),
    "watermarking": Sample(True),
    "web_search_options": Sample({"search_context_size": "low"}),
}
_RESPONSES_TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
_LOGPROBS = {"include": ["message.output_text.logprobs"]}
_MESSAGES_TOOL = {"name": "look", "input_schema": {"type": "object"}}
SAMPLES: dict[str, dict[str, Sample]] = {
    "chat": _OF_ALL,
    "completions": _OF_ALL
    | {
        "logprobs": Sample(2),
        "add_special_tokens": Sample(False),
        "logprob_token_ids": Sample([5], {"logprobs": 0}),
        "return_tokens_as_token_ids": Sample(True, {"logprobs": 1}),
    },
    "responses": _OF_ALL
    | {
        "parallel_tool_calls": Sample(False, {"tools": [_RESPONSES_TOOL]}),
        "return_tokens_as_token_ids": Sample(True, _LOGPROBS),
        "store": Sample(False),
        "tool_choice": Sample("none", {"tools": [_RESPONSES_TOOL]}),
        "tools": Sample([_RESPONSES_TOOL], relayed={"tools": [TOOL]}),
        "top_logprobs": Sample(2, _LOGPROBS, relayed={"top_logprobs": 2}),
    },
    "messages": _OF_ALL
    | {
        "context_management": Sample({"edits": []}),
        "return_tokens_as_token_ids": Sample(True),
        "tool_choice": Sample({"type": "none"}, {"tools": [_MESSAGES_TOOL]}, relayed={"tool_choice": "none"}),
        "tools": Sample([_MESSAGES_TOOL], relayed={"tools": [TOOL]}),
    },
}
"""By endpoint."""
