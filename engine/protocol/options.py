"""The options of the in-process engine: the name, type, limits, default and meaning of each, in one place.

A model server offers these options to its users as they are here: the docstring of a field is its help.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from engine.protocol.demo import MODEL_DIR
from engine.protocol.parts import AUTO_PARSER, REASONING_PARSERS, TOOL_CALL_PARSERS, known_parsers
from engine.protocol.system_messages import SystemMessages

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["int8", "int4"]
CpuKernels = Literal["auto", "native", "torch"]
AttentionBackendName = Literal["auto", "triton", "sdpa"]
SpeculativeMethod = Literal["ngram", "draft_model"]
LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]

AtLeastOne = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
FolderOrName = Annotated[str, AfterValidator(os.path.expanduser)]
"""A file or folder, or the name of a model: `~` is the home folder."""


def mapping(value: Any) -> Any:
    """The command line and the environment give a mapping as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}") from error


def parts(value: Any, read: Callable[[Any], Any] = lambda part: part) -> Any:
    """The parts of a list, each passed through `read`. The command line and the environment give a list as
    one text with commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, dict):
        value = [value]
    return list(map(read, value)) if isinstance(value, list | tuple) else value


GroupSize = Literal[32, 64, 128]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class LogitsProcessorConfig:
    name: str
    """The name that requests use."""
    path: str
    """The import path of its class (`engine.protocol.import_path`), or the short name of a processor that
    ships."""
    args: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments for its `__init__`."""
    mandatory: bool = False
    """Whether it runs for every request. A request may then not name it."""
    params: Mapping[str, Any] = Field(default_factory=dict)
    """The parameters of a mandatory processor."""
    policy_only: bool = False
    """Whether only the server's policies may name it, and no request."""


def _processor(value: Any) -> Any:
    """A processor may be given as `name=path`. One that ships, or is installed, may be given by its name."""
    if isinstance(value, str):
        name, _, path = value.partition("=")
        return {"name": name, "path": path or name}
    if isinstance(value, dict) and "path" not in value and "name" in value:
        return {**value, "path": value["name"]}
    return value


Processors = Annotated[
    tuple[LogitsProcessorConfig, ...], BeforeValidator(lambda value: parts(value, _processor))
]


class EngineChoices(BaseModel):
    """Choices that no deployment needs to make. Tests and measurements compare them."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    only_guards: bool = False
    """Whether only guards use the model. Its cache is then smaller, if `kv_cache_memory` is not given."""
    system_messages: SystemMessages = "auto"
    """The form of a chat with more than one system message. The settings of the model have it."""
    share_outputs: bool = True
    """Whether a prompt may also use the cached blocks of an earlier output. It must be False if hooks may
    have withheld a part of that output: a cache hit could confirm a guess at withheld text (`usage` and the
    time to the first token show the hit)."""
    model_impl: Literal["auto", "weir", "transformers"] = "auto"
    """The code that runs the model (auto: Weir's own for the families that it knows, else transformers')"""
    cpu_kernels: CpuKernels = "auto"
    """Kernels for the operations between matrix products on a CPU: native ones in C, compiled at start, or
    torch's (auto: native if there is a compiler)"""
    attention_backend: AttentionBackendName = "auto"
    """Attention on CUDA. triton: Weir's own kernels; sdpa: torch's operators on gathered pages (auto: triton
    if it passes a trial at start, else sdpa)"""
    enforce_eager: bool = False
    """Capture no CUDA graphs. Steps in which all sequences decode then run operator by operator, as other
    steps do"""
    async_scheduling: bool | None = None
    """Begin each step, also one with prompts, before the tokens of the last one are read, unless something
    guesses or scores tokens; outputs stay the same (default: on CUDA)"""
    quantization_group_size: GroupSize = 32
    """Inputs that share a scale in int4. Larger groups are faster and less exact"""
    block_size: AtLeastOne = 16
    """Tokens in a block of the key-value cache"""
    max_num_prefill_tokens: AtLeastOne | None = None
    """Prompt tokens in a step in which other sequences decode (default: as many as let the step take up to
    twice as long as without them, which the engine learns)"""
    speculative_method: SpeculativeMethod | None = None
    """The way to guess tokens. ngram: looked up in the text so far; draft_model: by speculative_model
    (default: looked up, and by speculative_model if the lookup finds nothing)"""
    prompt_lookup_min: AtLeastOne = 2
    """Fewest tokens at the end of the text that must occur earlier in it, for a guess at the next ones"""
    prompt_lookup_max: AtLeastOne = 4
    """Tokens at the end of the text that are looked for first, for a guess at the next ones"""

    @model_validator(mode="after")
    def _lookup_is_a_range(self) -> Self:
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError("prompt_lookup_min must be at most prompt_lookup_max")
        return self


class EngineConfig(EngineChoices):
    """The configuration of the in-process engine: the options that a deployment can set, and `EngineChoices`.
    Names and meanings are vLLM's where vLLM has the option. Raises `ValueError` for a value out of range."""

    model: FolderOrName = str(MODEL_DIR)
    """Model folder, GGUF file, `hf://org/repo/FILE.gguf`, `ollama:NAME` or hub name (local; default: the
    small model that ships)"""
    tokenizer: FolderOrName | None = None
    """Folder or hub name of a tokenizer, with its chat template (default: the model's; in front of upstreams:
    none, and upstreams are asked for token ids)"""
    trust_remote_code: bool = False
    """Let the model's folder bring its own Python code"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that the model runs on (auto: on CUDA if there is a device, else on the CPU)"""
    dtype: Dtype = "auto"
    """Number format of weights, keys and values (auto: as the checkpoint was saved, but bfloat16 for AWQ and
    GPTQ checkpoints, which run on a CPU only)"""
    quantization: Quantization | None = None
    """Round weights to 8 or 4 bits while loading. A step then reads a half, or a third, of the memory. Only
    on a CPU, and for models that run on Weir's own code"""
    batch_invariant: bool = True
    """Multiply by one kernel for any number of streams, so that streams do not change each other's products.
    Without it, each number of streams has the fastest kernel: logprobs may then differ in their last bits,
    and weights that two kernels lay out differently take twice the memory"""
    max_model_len: AtLeastOne | None = None
    """Longest prompt and output together, in tokens; never more than the model's own limit (default: that
    limit)"""
    max_num_seqs: AtLeastOne = 64
    """Sequences that run at the same time"""
    max_num_seqs_per_caller: AtLeastOne | None = None
    """Sequences of one caller that run at the same time (default: all, while no other caller waits)"""
    max_num_batched_tokens: AtLeastOne = 2048
    """Tokens in one step of the engine. A longer prompt is computed in several steps"""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    """Order of one caller's waiting requests. fcfs: by arrival, and a request with a priority is refused;
    priority: by priority, then by arrival. Callers take turns, among requests of the same priority"""
    max_queue_len: NotNegative = 1024
    """Outputs that may wait for their turn. If as many wait, a request of a caller who has an equal share of
    them, or more, gets status 429"""
    max_queue_len_per_caller: NotNegative | None = None
    """Outputs of one caller that may wait, in addition to those that may run. A request that finds as many
    waiting gets status 429 (default: max_queue_len)"""
    enable_prefix_caching: bool = True
    """Compute a beginning that several prompts share only once"""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory that this process may fill with weights, steps, CUDA graphs, keys and values.
    Models load one after another, and each gets what is left below its share. No effect on a CPU"""
    kv_cache_memory: AtLeastOne | None = None
    """Bytes for keys and values (default: enough for max_num_seqs sequences of max_model_len, but at most
    the rest of gpu_memory_utilization on a GPU, an eighth of it for a model that only guards use; on a CPU, a
    quarter of the free memory, or of the memory that a container may still use, and an eighth for guards)"""
    num_speculative_tokens: NotNegative = 0
    """Tokens to guess and to compute in the same step; outputs stay the same. 0: none"""
    speculative_model: FolderOrName | None = None
    """Folder or hub name of a small model with the same vocabulary, which guesses tokens (default: they are
    only looked up in the text so far)"""
    logprobs_mode: LogprobsMode = "raw_logprobs"
    """Logprobs before (raw) or after (processed) penalties, temperature and filters"""
    logits_processors: Processors = ()
    """Logits processor that requests may name: NAME=pkg.module.Class, or the name of one that ships; repeat.
    Processors run in this order, masks before shapers"""
    enable_test_logits_processor: bool = False
    """Answer every request with 'Hello world!', to see that logits processors work"""
    probes: Annotated[tuple[FolderOrName, ...], BeforeValidator(parts)] = ()
    """File of a probe of this model: it scores every token, for hooks such as `probe`; repeat (demo model:
    weir-demo-probe)"""
    generation_config: Literal["auto", "none"] = "auto"
    """Sampling of requests that leave it open. auto: what the model's generation_config.json or GGUF file
    recommends (temperature, top_k, top_p, min_p, repetition_penalty); none: the API's defaults"""
    seed: int | None = None
    """Seed of requests that give none (default: a fresh one at each start)"""
    tokenizer_pool_size: ClassVar[int] = 2
    """Long prompts that are tokenized at the same time. Callers take turns. More threads would take time from
    the model's steps."""
    num_threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads of a step (default: as a trial at start finds best for steps of its size)"""
    reasoning_parser: Annotated[
        str | None, Field(description=f"How the model marks its reasoning: {', '.join(REASONING_PARSERS)}")
    ] = None
    tool_call_parser: Annotated[
        str | None,
        Field(
            description=f"How the model writes tool calls: {', '.join(TOOL_CALL_PARSERS)}; or {AUTO_PARSER}, "
            "as its chat template shows"
        ),
    ] = None

    @field_validator("reasoning_parser", "tool_call_parser")
    @classmethod
    def _parser_exists(cls, name: str | None, info: ValidationInfo) -> str | None:
        known = known_parsers(str(info.field_name))
        if info.field_name == "tool_call_parser":
            known = (AUTO_PARSER, *known)
        if name is not None and name not in known:
            raise ValueError(f"unknown parser '{name}'; known parsers are {', '.join(known)}")
        return name

    @model_validator(mode="after")
    def _speculation_is_whole(self) -> Self:
        if self.speculative_model is not None and not self.num_speculative_tokens:
            raise ValueError("speculative_model needs num_speculative_tokens of 1 or more")
        return self

    @model_validator(mode="after")
    def _method_has_its_model(self) -> Self:
        if self.speculative_method == "draft_model" and self.speculative_model is None:
            raise ValueError("speculative_method draft_model needs a speculative_model")
        if self.speculative_method == "ngram" and self.speculative_model is not None:
            raise ValueError("speculative_method ngram uses no speculative_model")
        return self

    @property
    def tokenizer_name(self) -> str:
        """The folder or hub name of the tokenizer that is used."""
        return self.tokenizer or self.model
