"""What the in-process engine is told at start: plain values, wherever they come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
ModelImpl = Literal["auto", "weir", "transformers"]
Quantization = Literal["int8"]
CpuKernels = Literal["auto", "native", "torch"]
AttentionBackendName = Literal["auto", "triton", "varlen", "sdpa"]
SchedulingPolicy = Literal["fcfs", "priority"]
LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]


@dataclass(frozen=True, slots=True)
class LogitsProcessorConfig:
    """A logits processor that the server registers."""

    name: str
    """What requests call it."""
    path: str
    """Its class (`engine.import_path`), or the short name of one that ships."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for its `__init__`."""
    mandatory: bool = False
    """It runs for every request, and none may name it."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """What a mandatory one has for its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Names and meanings are vLLM's, where it has them."""

    model: str
    """A transformers directory, or a name on the hub."""
    dtype: Dtype = "auto"
    """auto: as the checkpoint was saved."""
    device: Device = "auto"
    """auto: CUDA where there is a device, else the CPU."""
    model_impl: ModelImpl = "auto"
    """auto: Weir's own decoder for the families that it knows, transformers' code for all others."""
    quantization: Quantization | None = None
    """int8: weights of 8 bits, made while loading. Half the memory to read for each token, for few streams at
    once; Weir's own decoder only."""
    cpu_kernels: CpuKernels = "auto"
    """native: in C, compiled at start; torch: torch's own operators. auto: native where a compiler is."""
    attention_backend: AttentionBackendName = "auto"
    """triton: kernels of Weir's own; varlen: torch's `varlen_attn`, which needs FlashAttention 3; sdpa: over
    gathered pages, by torch's operators. auto, on CUDA: the first of varlen, triton and sdpa that passes a
    trial at start; on the CPU, what `cpu_kernels` says."""
    enforce_eager: bool = False
    """Whether on CUDA steps in which all sequences decode run operator by operator, as others do, rather than
    as graphs captured at start."""
    max_model_len: int | None = None
    """Longest prompt and output together, in tokens. None: the model's own; never more than that."""
    max_num_seqs: int = 64
    """Sequences that run at once."""
    max_num_batched_tokens: int = 2048
    """Tokens computed in one step; a longer prompt is prefilled in chunks of at most this."""
    max_num_prefill_tokens: int | None = None
    """Prompt tokens computed in one step beside sequences that decode. None: as many as let it take up to
    twice as long as without them, which the engine learns (`engine.core.step_budget`)."""
    scheduling_policy: SchedulingPolicy = "fcfs"
    """Who is next: by arrival (a request with a priority is refused), or by priority and then by arrival."""
    block_size: int = 16
    """Tokens whose keys and values share one block of the cache."""
    enable_prefix_caching: bool = True
    """Whether a prompt that begins as an earlier text did takes that text's blocks."""
    share_outputs: bool = True
    """Whether it may also take an earlier output's blocks. Not where some of that may have been withheld: who
    guesses it would see it found (`usage`, and the time to the first token)."""
    kv_cache_memory: int | None = None
    """Bytes for keys and values. None: enough for `max_num_seqs` sequences of `max_model_len`, but at most a
    quarter of the device's free memory (on the CPU, of what a container's limit leaves)."""
    max_queue_len: int = 1024
    """Outputs that may wait for their turn; a request that finds this many waiting gets `QueueFullError`."""
    num_speculative_tokens: int = 0
    """Tokens to guess from a sequence's own text and compute with its last one
    (`engine.sampling.speculation`), for
    fewer steps; outputs stay what they are. 0: none."""
    prompt_lookup_min: int = 2
    """Tokens at the text's end that must have stood before, for a guess at what follows."""
    prompt_lookup_max: int = 4
    """Tokens that are looked for first."""
    logprobs_mode: LogprobsMode = "raw_logprobs"
    """Whether logprobs are of the model's own distribution, or of the one that tokens were drawn from."""
    reasoning_parser: str | None = None
    """What the service takes for reasoning: what guides an output waits for its end."""
    tool_call_parser: str | None = None
    """What the service takes for tool calls: how a model writes those that it must make."""
    seed: int | None = None
    """Of the draws of requests without a seed of their own. None: a fresh one at each start."""
    num_threads: int | None = None
    """Of torch on the CPU. None: by what a step has to compute (`engine.execution.threads`)."""
    trust_remote_code: bool = False
    logits_processors: tuple[LogitsProcessorConfig, ...] = ()
    """In the order in which they run, masks before shapers. Installed packages may register more (the entry
    points `weir.logits_processors`)."""
    enable_test_logits_processor: bool = False
    """Every answer is "Hello world!", to see that processors work."""

    def __post_init__(self) -> None:
        for name in (
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_num_prefill_tokens",
            "block_size",
            "num_threads",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        for name in ("max_queue_len", "num_speculative_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}.")
        if not 1 <= self.prompt_lookup_min <= self.prompt_lookup_max:
            raise ValueError("prompt_lookup_min must be at least 1, and at most prompt_lookup_max.")
