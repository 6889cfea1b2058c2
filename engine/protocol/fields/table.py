"""The table of request fields: all that Weir knows of each field that an engine or an upstream reads.

The fields of `SamplingParams` and `GenerationRequest` are among them. Fields that an endpoint alone reads,
such as `messages`, stand in its class.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Literal

EMPTY: Any = object()
"""The default of most fields: false, an empty text, list or object asks for nothing."""


class Relay(Enum):
    """When an upstream of OpenAI's API gets a field. A field that is not in the table is `BY_NAME`."""

    BY_DEFAULT = auto()
    BY_NAME = auto()
    """Only if the operator names it in `relay_fields`. Such a field names hosts, adapters, sessions or slots,
    or plug-ins of the server read it."""
    NEVER = auto()
    """Weir sends it by another name. Or Weir refuses it: it is code, or asks for output that no hook sees."""


@dataclass(frozen=True, slots=True)
class RequestField:
    name: str
    dialect: str
    """The API or the server that documents it."""
    binds: bool = True
    """Whether the field changes the answer. An engine with a model must then honour or refuse it. A field
    that does not change the answer may be ignored."""
    relay: Relay = Relay.BY_DEFAULT
    limit: Literal["max_tokens"] | None = None
    """The limit that it is a name for."""
    carries: Literal["text", "tokens"] | None = None
    """`text`: the caller's own words. `tokens`: a prompt or its part in another form. None: a setting."""
    default: Any = EMPTY
    """The value that asks for nothing, as null does."""
    is_schema: bool = False
    """Whether it holds a schema, a grammar or a pattern, which costs the engine time by its size."""


def _limit(name: str, dialect: str) -> RequestField:
    return _never(name, dialect, limit="max_tokens")


def _text(name: str, dialect: str, **more: Any) -> RequestField:
    return RequestField(name, dialect, carries="text", **more)


def _schema(name: str, dialect: str, **more: Any) -> RequestField:
    return _text(name, dialect, is_schema=True, **more)


def _hint(name: str, dialect: str, **more: Any) -> RequestField:
    return RequestField(name, dialect, binds=False, **more)


def _by_name(name: str, dialect: str, **more: Any) -> RequestField:
    """A field that steers the upstream, or that its plug-ins read."""
    return RequestField(name, dialect, relay=Relay.BY_NAME, **more)


def _never(name: str, dialect: str, **more: Any) -> RequestField:
    return RequestField(name, dialect, relay=Relay.NEVER, **more)


_ROWS = (
    # The limit of an output's tokens, by each of its names. An upstream gets it as `max_tokens`.
    _limit("max_tokens", "OpenAI"),
    _limit("max_completion_tokens", "OpenAI"),
    _limit("max_output_tokens", "OpenAI"),
    _limit("max_tokens_to_sample", "Messages"),
    _limit("max_new_tokens", "SGLang"),
    _limit("n_predict", "llama.cpp"),
    _limit("num_predict", "Ollama"),
    _limit("max_length", "transformers"),
    _limit("max_gen_len", "Llama"),
    # Which tokens come.
    RequestField("n", "OpenAI"),
    RequestField("best_of", "OpenAI", default=1),
    RequestField("temperature", "OpenAI"),
    RequestField("top_p", "OpenAI"),
    RequestField("presence_penalty", "OpenAI"),
    RequestField("frequency_penalty", "OpenAI"),
    RequestField("logit_bias", "OpenAI"),
    RequestField("seed", "OpenAI"),
    _text("stop", "OpenAI"),
    _text("prediction", "OpenAI", binds=False),
    RequestField("top_k", "vLLM"),
    RequestField("min_p", "vLLM"),
    RequestField("repetition_penalty", "vLLM"),
    RequestField("min_tokens", "vLLM"),
    RequestField("stop_token_ids", "vLLM"),
    RequestField("ignore_eos", "vLLM"),
    RequestField("allowed_token_ids", "vLLM"),
    _text("bad_words", "vLLM"),
    RequestField("use_beam_search", "vLLM"),
    RequestField("length_penalty", "vLLM", default=1.0),
    RequestField("repetition_detection", "vLLM"),
    RequestField("thinking_token_budget", "vLLM"),
    RequestField("watermarking", "vLLM", default=None),
    _never("logits_processors", "Weir"),
    _never("custom_logit_processor", "SGLang"),
    _schema("stop_regex", "SGLang"),
    _hint("early_stopping", "TensorRT-LLM"),
    _hint("top_p_min", "TensorRT-LLM"),
    _hint("prompt_ignore_length", "TensorRT-LLM"),
    # Clients of llama.cpp send all of its samplers with each request.
    _hint("dynatemp_range", "llama.cpp"),
    _hint("dynatemp_exponent", "llama.cpp"),
    _hint("typical_p", "llama.cpp"),
    _hint("top_n_sigma", "llama.cpp"),
    _hint("min_keep", "llama.cpp"),
    _hint("n_indent", "llama.cpp"),
    _hint("repeat_penalty", "llama.cpp"),
    _hint("repeat_last_n", "llama.cpp"),
    _hint("dry_multiplier", "llama.cpp"),
    _hint("dry_base", "llama.cpp"),
    _hint("dry_allowed_length", "llama.cpp"),
    _hint("dry_penalty_last_n", "llama.cpp"),
    _text("dry_sequence_breakers", "llama.cpp", binds=False),
    _hint("xtc_probability", "llama.cpp"),
    _hint("xtc_threshold", "llama.cpp"),
    _hint("mirostat", "llama.cpp"),
    _hint("mirostat_tau", "llama.cpp"),
    _hint("mirostat_eta", "llama.cpp"),
    _hint("samplers", "llama.cpp"),
    _hint("t_max_predict_ms", "llama.cpp"),
    # The form that the output must have.
    _schema("response_format", "OpenAI", default={"type": "text"}),
    _schema("structured_outputs", "vLLM"),
    _schema("guided_json", "vLLM"),
    _schema("guided_regex", "vLLM"),
    _schema("guided_choice", "vLLM"),
    _schema("guided_grammar", "vLLM"),
    _schema("guided_whitespace_pattern", "vLLM"),
    RequestField("guided_decoding_backend", "vLLM"),
    _schema("regex", "SGLang"),
    _schema("ebnf", "SGLang"),
    _schema("json_schema", "SGLang"),
    _schema("grammar", "llama.cpp"),
    # Tools, and other things that the answer is to have.
    _text("tools", "OpenAI"),
    _text("tool_choice", "OpenAI"),
    RequestField("parallel_tool_calls", "OpenAI"),
    _text("functions", "OpenAI"),
    _text("function_call", "OpenAI"),
    _text("web_search_options", "OpenAI"),
    _never("audio", "OpenAI"),
    _never("modalities", "OpenAI", default=["text"]),
    _never("moderation", "OpenAI"),
    # The prompt.
    _text("suffix", "OpenAI"),
    RequestField("echo", "OpenAI"),
    _text("documents", "vLLM"),
    RequestField("add_special_tokens", "vLLM", default=None),  # true for completions, false for chats
    RequestField("add_generation_prompt", "vLLM", default=True),
    RequestField("continue_final_message", "vLLM"),
    RequestField("truncate_prompt_tokens", "vLLM"),
    RequestField("truncation_side", "vLLM", default="left"),
    _never("chat_template", "vLLM", carries="text"),
    _text("chat_template_kwargs", "vLLM"),
    _by_name("media_io_kwargs", "vLLM"),
    _by_name("mm_processor_kwargs", "vLLM"),
    _by_name("mm_payload", "vLLM", binds=False),
    _by_name("previous_input_messages", "vLLM", carries="text"),
    _by_name("prompt_embeds", "vLLM", carries="tokens"),
    _by_name("input_embeds", "SGLang", carries="tokens"),
    _by_name("input_ids", "SGLang", carries="tokens"),
    _by_name("prompt_token_ids", "TensorRT-LLM", carries="tokens"),
    _by_name("prompt_token_ids_b64", "TensorRT-LLM", carries="tokens"),
    # The parts of the answer.
    RequestField("logprobs", "OpenAI"),
    RequestField("prompt_logprobs", "vLLM"),
    _never("logprob_token_ids", "vLLM"),
    RequestField("return_token_ids", "vLLM"),
    _never("return_prompt_text", "vLLM"),
    RequestField("skip_special_tokens", "vLLM", default=True),
    RequestField("spaces_between_special_tokens", "vLLM", default=True),
    _never("include_stop_str_in_output", "vLLM"),
    RequestField("include_reasoning", "vLLM", default=True),
    _never("enable_response_messages", "vLLM"),
    _by_name("return_mm_kwargs", "vLLM", binds=False),
    _by_name("return_token_offsets", "vLLM", binds=False),
    _by_name("routed_experts_prompt_start", "vLLM", binds=False, default=0),
    _never("no_stop_trim", "SGLang"),
    RequestField("separate_reasoning", "SGLang", default=True),
    _hint("stream_reasoning", "SGLang", default=True),
    _never("return_hidden_states", "SGLang"),
    _hint("reasoning_format", "llama.cpp"),
    # Reasoning. Agents send some of these to every model, and some chat templates read them.
    _hint("reasoning_effort", "OpenAI"),
    _hint("verbosity", "OpenAI"),
    _hint("reasoning", "SGLang"),
    _hint("reasoning.context", "OpenAI"),
    _hint("reasoning.generate_summary", "OpenAI"),
    _hint("reasoning.mode", "OpenAI"),
    _hint("reasoning.summary", "OpenAI"),
    _hint("thinking", "Messages"),
    _hint("thinking.block_binding", "Messages"),
    # Cost, speed and accounts.
    _hint("cache_salt", "vLLM"),
    _hint("priority", "vLLM"),
    _hint("stream_interval", "vLLM"),
    _hint("service_tier", "OpenAI"),
    _hint("prompt_cache_key", "OpenAI"),
    _hint("prompt_cache_options", "OpenAI"),
    _hint("prompt_cache_retention", "OpenAI"),
    _hint("safety_identifier", "OpenAI"),
    _hint("store", "OpenAI"),
    _hint("stream_options.include_obfuscation", "OpenAI"),
    _by_name("access_programs", "OpenAI", binds=False),
    _by_name("background_options", "OpenAI", binds=False),
    _hint("cache_control", "Messages"),
    _by_name("anthropic_beta", "Messages", binds=False),
    _by_name("billing_policy", "Messages", binds=False),
    _by_name("fallback_credit_token", "Messages", binds=False),
    _by_name("fallbacks", "Messages", binds=False),
    _by_name("speed", "Messages", binds=False),
    _by_name("diagnostics", "Messages", binds=False),
    _by_name("inference_geo", "Messages", binds=False),
    # Agents' long conversations. A prompt that is too long is refused.
    _by_name("context_management", "OpenAI", binds=False),
    _by_name("image", "OpenAI", binds=False),
    _by_name("container", "Messages", binds=False),
    _by_name("output_config.task_budget", "Messages", binds=False),
    # Where a request runs: hosts, workers, slots, adapters, and names that other requests may have.
    _by_name("request_id", "vLLM", binds=False),
    _by_name("rid", "SGLang", binds=False),
    _by_name("session_id", "vLLM", binds=False),
    _by_name("session_params", "SGLang", carries="tokens"),
    _by_name("conversation_params", "TensorRT-LLM", binds=False),
    _by_name("extra_key", "SGLang", binds=False),
    _by_name("id_slot", "llama.cpp", binds=False),
    _by_name("kv_transfer_params", "vLLM"),
    _by_name("ec_transfer_params", "vLLM"),
    _by_name("disaggregated_params", "TensorRT-LLM", binds=False),
    _by_name("bootstrap_host", "SGLang", binds=False),
    _by_name("bootstrap_port", "SGLang", binds=False),
    _by_name("bootstrap_room", "SGLang", binds=False),
    _by_name("routed_dp_rank", "SGLang", binds=False),
    _by_name("disagg_prefill_dp_rank", "SGLang", binds=False),
    _by_name("data_parallel_rank", "SGLang", binds=False),
    _by_name("lora_path", "SGLang"),
    _by_name("lora_request", "TensorRT-LLM"),
    _by_name("lora", "llama.cpp", binds=False),
    # Objects that plug-ins of the server read, or that hold further fields.
    _by_name("vllm_xargs", "vLLM"),
    _by_name("custom_params", "SGLang"),
    _by_name("nvext", "Dynamo", carries="tokens"),
    _by_name("extra_body", "OpenAI", binds=False),
    # Embeddings, ranks and scores.
    _hint("encoding_format", "OpenAI"),
    _hint("dimensions", "OpenAI"),
    _hint("use_activation", "vLLM"),
    _hint("normalize", "vLLM"),
    _hint("padding", "vLLM"),
    _hint("top_n", "vLLM"),
    _hint("return_documents", "SGLang"),
    _hint("max_tokens_per_doc", "vLLM"),
    _hint("max_tokens_per_query", "vLLM"),
    _text("instruction", "vLLM", binds=False),
    _text("instruct", "SGLang", binds=False),
    _hint("label_token_ids", "SGLang"),
    _hint("apply_softmax", "SGLang"),
    _hint("item_first", "SGLang"),
)

FIELDS = {field.name: field for field in _ROWS}
"""By name."""
