"""Makes a request's sequences: checks the fields, tokenizes the prompts, and checks that they fit."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from engine.core.guidance import Guidance
from engine.protocol import GenerationRequest, ProbeInfo, Prompt, RequestError, SamplingParams, Token
from engine.protocol.fields.asked import ENGINE_FIELDS, SAMPLING_FIELDS, check_fields
from engine.protocol.fields.support import FieldSupport, Treatment
from engine.protocol.options import EngineConfig
from engine.protocol.prompt_size import too_long
from engine.sampling.guided.grammar import GRAMMAR_FIELDS
from engine.sampling.logit_bias import LogitBias
from engine.sampling.logits_processors import Context
from engine.sampling.logits_processors.builtin.forced_sequence import hello_world
from engine.sampling.logits_processors.names import OTHER_FIELDS, PARAMETER_FIELDS
from engine.sampling.logits_processors.registry import LIMITS, ProcessorRegistry
from engine.sampling.sampling_state import SamplingState
from engine.scheduling.block_hash import root_hash, unique_root
from engine.scheduling.sequence import SequenceGroup
from engine.sources.sampling_defaults import sampling_defaults_of
from engine.text.alignment import align_tokens
from engine.text.chat_template import TEMPLATE_FIELDS
from engine.text.detokenizer import SKIPPED, WRITTEN, Detokenizer, SpecialTokens, TextStream
from engine.text.fields import TextFields
from engine.text.tokenizer import LocalTokenizer

if TYPE_CHECKING:
    import torch

MAX_N = 128
MAX_LOGPROBS = 20
"""Both limits are the OpenAI API's."""
MAX_LOGPROB_TOKEN_IDS = 128
"""vLLM's limit."""
MAX_BIAS = 1e30
"""A larger bias would take a logit out of the range of floats."""

SEARCH_FIELDS = ("use_beam_search", "length_penalty")
"""The fields of `GenerationRequest.extra` that belong to a beam search. `n` is its width: the number of beams
that live, and the number of outputs."""
_IN_CHATS = frozenset({"tools", "tool_choice", "parallel_tool_calls", *TEMPLATE_FIELDS})
_IN_COMPLETIONS = frozenset({"echo", "best_of", "suffix", *SEARCH_FIELDS})
FIELDS = FieldSupport(
    honoured=SAMPLING_FIELDS.union(
        ENGINE_FIELDS, GRAMMAR_FIELDS, OTHER_FIELDS, PARAMETER_FIELDS, LIMITS, TextFields.model_fields
    )
    - _IN_CHATS
    - _IN_COMPLETIONS,
    honoured_in_chats=_IN_CHATS,
    honoured_in_completions=_IN_COMPLETIONS,
    rest=Treatment.REFUSED,
)
"""The treatment of fields in every engine that makes its sequences here, whatever the model."""


def fields_of(tokenizer: LocalTokenizer) -> FieldSupport:
    """The treatment of fields with the model of this tokenizer."""
    return replace(FIELDS, honoured_in_chats=FIELDS.honoured_in_chats | tokenizer.template_hints)


class ServedModel(Protocol):
    """The facts about a loaded model that requests are checked against."""

    @property
    def max_model_len(self) -> int: ...
    @property
    def vocab_size(self) -> int:
        """The width of the logits."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...
    @property
    def device(self) -> "torch.device": ...
    @property
    def probes(self) -> tuple[ProbeInfo, ...]: ...


@dataclass(frozen=True, slots=True)
class InputProcessor:
    tokenizer: LocalTokenizer
    max_model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    processors: ProcessorRegistry
    guidance: Guidance
    config: EngineConfig
    probes: tuple[ProbeInfo, ...] = ()
    sampling_defaults: Mapping[str, Any] = field(default_factory=dict)
    """For the fields that a caller leaves open: see `sampling_defaults_of`."""

    @classmethod
    def make(cls, tokenizer: LocalTokenizer, model: ServedModel, config: EngineConfig) -> "InputProcessor":
        """For a loaded model and its configuration. Raises `ProcessorLoadError`."""
        tokenizer.max_tokens = model.max_model_len
        context = make_context(tokenizer, model.vocab_size, model.eos_token_ids, model.device)
        return cls(
            tokenizer,
            model.max_model_len,
            model.vocab_size,
            frozenset(context.eos_token_ids),
            make_registry(context, config),
            Guidance(tokenizer, context, config),
            config,
            model.probes,
            sampling_defaults_of(config.model) if config.generation_config == "auto" else {},
        )

    @property
    def fields(self) -> FieldSupport:
        """The treatment of fields with this model."""
        return fields_of(self.tokenizer)

    @property
    def end_ids(self) -> frozenset[int]:
        """All ids by which the model may end an output."""
        infill = self.tokenizer.infill
        return self.eos_token_ids if infill is None else self.eos_token_ids | infill.end_ids

    def process(self, request: GenerationRequest) -> SequenceGroup:
        """The request's sequences, ready to be scheduled. Raises `RequestError` and `LogitsProcessorError`. A
        long text takes a while. Nothing shared is touched, so that a worker thread can do it."""
        check_fields(request, FIELDS)
        request = self._with_defaults(request)
        grammar = self.guidance.requested_grammar(request)
        request, processors = self.processors.realize(request)
        self._check_sampling(request)
        if request.priority and self.config.scheduling_policy != "priority":
            raise RequestError(
                "priority: this engine serves by arrival (its scheduling_policy is fcfs).", param="priority"
            )
        group = self._group(request)
        for seq in group.sequences:
            seq.sampling.processors = tuple(one.start(seq.sampling.token_ids) for one in processors)
        if grammar is not None:
            self.guidance.begin(group, grammar)
        _check_limits(group.sequences[0].sampling)
        return group

    def _with_defaults(self, request: GenerationRequest) -> GenerationRequest:
        """Only a caller leaves fields open: a guard's own question gives none, and means what it says. A beam
        search draws nothing."""
        if not request.given or request.extra.get("use_beam_search"):
            return request
        is_open = {name: v for name, v in self.sampling_defaults.items() if name not in request.given}
        return replace(request, sampling=replace(request.sampling, **is_open)) if is_open else request

    def _group(self, request: GenerationRequest) -> SequenceGroup:
        root = root_hash(request.cache_salt) if self.config.enable_prefix_caching else unique_root()
        secret = b"" if self.config.share_outputs else unique_root()
        num_public = None
        if request.num_unsalted_tokens and self.config.enable_prefix_caching:
            root, secret, num_public = root_hash(None), root, request.num_unsalted_tokens
        bias = LogitBias(request.sampling.logit_bias) if request.sampling.logit_bias else None
        group = SequenceGroup(request, root_hash=root, secret=secret, num_public_tokens=num_public, bias=bias)
        fields = TextFields.of(request)
        if fields.suffix:
            _check_infill(request, fields)
        if request.is_chat:
            ids = self.tokenizer.encode_chat(
                request,
                add_special_tokens=fields.add_special_tokens is True,
                is_truncated=fields.truncate_prompt_tokens is not None,
            )
            self._add(group, ids, None, fields)
        for prompt in request.prompts:
            ids = self._encode(prompt, fields)
            self._add(group, ids, tuple(ids) if fields.suffix else prompt, fields)
        if not group.sequences:
            raise RequestError("The request has no prompt.", param="prompt")
        return group

    def _encode(self, prompt: Prompt, fields: TextFields) -> list[int]:
        adds = fields.add_special_tokens is not False
        if fields.suffix:
            return self.tokenizer.encode_infill(prompt, fields.suffix, add_special_tokens=adds)
        if not isinstance(prompt, str):
            return list(prompt)
        return self.tokenizer.encode(
            prompt, add_special_tokens=adds, is_truncated=fields.truncate_prompt_tokens is not None
        )

    def _add(self, group: SequenceGroup, ids: list[int], prompt: Prompt | None, fields: TextFields) -> None:
        request = group.request
        param = "messages" if prompt is None else "prompt"
        if not ids:
            raise RequestError("The prompt is empty.", param=param)
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            raise RequestError(f"Token ids must be between 0 and {self.vocab_size - 1}.", param=param)
        least = 1 if request.sampling.max_tokens is None else request.sampling.max_tokens
        kept = fields.truncated(ids, self.max_model_len - least)
        if len(kept) < len(ids):
            ids, prompt = kept, None if prompt is None else tuple(kept)
        max_tokens = self._room(len(ids), request.sampling.max_tokens, param)
        special = SpecialTokens(fields.skip_special_tokens, fields.spaces_between_special_tokens)
        echo_texts = self._echo_texts(ids, prompt, special) if request.returns_prompt else None
        seed = request.sampling.seed
        group.num_prompt_tokens += len(ids)
        for i in range(request.sampling.num_candidates):
            group.add(
                ids,
                max_tokens=max_tokens,
                detokenizer=Detokenizer(
                    self.tokenizer.fast, ids, request.sampling.stop, special, self.tokenizer.whole_texts
                ),
                seed=None if seed is None else seed + i,
                eos_token_ids=self._ends(request, fields),
                echo_texts=echo_texts,
            )

    def _ends(self, request: GenerationRequest, fields: TextFields) -> frozenset[int]:
        if request.sampling.ignore_eos:
            return frozenset()
        return self.end_ids if fields.suffix else self.eos_token_ids

    def _room(self, num_prompt_tokens: int, max_tokens: int | None, param: str) -> int:
        wanted = 1 if max_tokens is None else max_tokens
        if num_prompt_tokens + wanted > self.max_model_len:
            details = (
                f"you requested {num_prompt_tokens + wanted} tokens ({num_prompt_tokens} in the {param}, "
                f"{wanted} in the completion). Please reduce the length of the {param} or completion."
            )
            raise too_long(self.max_model_len, details, param)
        return self.max_model_len - num_prompt_tokens if max_tokens is None else max_tokens

    def _echo_texts(self, ids: list[int], prompt: Prompt | None, special: SpecialTokens) -> tuple[str, ...]:
        if not isinstance(prompt, str):
            return self._texts(ids, special)
        # A text is echoed as it is. It may name special tokens; those that the tokenizer added do not count.
        for one in (SKIPPED, WRITTEN):
            texts = self._texts(ids, one)
            if "".join(texts) == prompt:
                return texts
        return tuple(token.text for token in align_tokens([Token(i, "") for i in ids], prompt))

    def _texts(self, ids: list[int], special: SpecialTokens) -> tuple[str, ...]:
        stream = TextStream(self.tokenizer.fast, special=special)
        return tuple(stream.step(i) for i in ids)

    def _check_sampling(self, request: GenerationRequest) -> None:
        check_sampling(request.sampling)
        names = ("logit_bias", "stop_token_ids", "logprob_token_ids")
        ids: dict[str, Iterable[int]] = {name: getattr(request.sampling, name) for name in names}
        for name, values in ids.items():
            if not all(0 <= i < self.vocab_size for i in values):
                raise RequestError(
                    f"{name}: token ids must be between 0 and {self.vocab_size - 1}.", param=name
                )


def _check_infill(request: GenerationRequest, fields: TextFields) -> None:
    """Raise `RequestError` for a field that `suffix` cannot be combined with."""
    is_combined = {"echo": request.echo, "truncate_prompt_tokens": fields.truncate_prompt_tokens is not None}
    for name, is_set in is_combined.items():
        if is_set:
            raise RequestError(f"{name} cannot be combined with suffix.", param=name)


def _check_limits(sampling: SamplingState) -> None:
    """Raise `RequestError` if the grammar, `allowed_token_ids`, `min_tokens` and `bad_words` together forbid
    every first token (contract 7.5)."""
    limits = sampling.limits
    if not limits and not sampling.forbidden_ends:
        return
    left = None if sampling.guide is None else sampling.guide.next_ids
    if "allowed_token_ids" in limits:
        allowed = limits["allowed_token_ids"].token_ids
        left = allowed if left is None else allowed & left
    if left is None:
        return
    left -= sampling.forbidden_ends
    if "bad_words" in limits:
        left -= {word[0] for word in limits["bad_words"].sequences if len(word) == 1}
    if not left:
        raise sampling.no_token_left()


def make_context(
    tokenizer: LocalTokenizer, vocab_size: int, eos_token_ids: frozenset[int], device: "torch.device"
) -> Context:
    """The facts for logits processors. The tokenizer's own end of sequence comes first."""
    own = tokenizer.eos_token_id
    ends = eos_token_ids.union(() if own is None else (own,))
    return Context(tokenizer, vocab_size, tuple(sorted(ends, key=lambda i: (i != own, i))), device)


def make_registry(context: Context, config: EngineConfig) -> ProcessorRegistry:
    """The server's logits processors. Raises `ProcessorLoadError`."""
    always = [hello_world(context)] if config.enable_test_logits_processor else []
    return ProcessorRegistry(context, config.logits_processors, always)


def check_sampling(s: SamplingParams) -> None:
    """Raise `RequestError` for the first field that is out of its range."""
    max_tokens = math.inf if s.max_tokens is None else s.max_tokens
    rules = {
        "n": (1 <= s.n <= MAX_N, f"must be between 1 and {MAX_N}"),
        "best_of": (s.best_of is None or s.n <= s.best_of <= MAX_N, f"must be between n and {MAX_N}"),
        "max_tokens": (max_tokens >= 0, "must not be negative"),
        "min_tokens": (0 <= s.min_tokens <= max_tokens, "must be between 0 and max_tokens"),
        "temperature": (0 <= s.temperature < math.inf, "must be finite and not negative"),
        "top_k": (s.top_k >= -1, "must be -1 or 0 (all), or positive"),
        "top_p": (0 <= s.top_p <= 1, "must be between 0 and 1"),
        "min_p": (0 <= s.min_p <= 1, "must be between 0 and 1"),
        "presence_penalty": (-2 <= s.presence_penalty <= 2, "must be between -2 and 2"),
        "frequency_penalty": (-2 <= s.frequency_penalty <= 2, "must be between -2 and 2"),
        "repetition_penalty": (0 < s.repetition_penalty < math.inf, "must be finite and positive"),
        "logit_bias": (
            all(-MAX_BIAS <= bias <= MAX_BIAS for bias in s.logit_bias.values()),
            f"must hold numbers from -{MAX_BIAS:g} to {MAX_BIAS:g}",
        ),
        "stop": (all(s.stop), "must not hold an empty string"),
        "logprob_token_ids": (
            not s.logprob_token_ids
            or (s.logprobs is not None and len(s.logprob_token_ids) <= MAX_LOGPROB_TOKEN_IDS),
            f"needs logprobs, and has at most {MAX_LOGPROB_TOKEN_IDS} ids",
        ),
        **{
            name: (0 <= (getattr(s, name) or 0) <= MAX_LOGPROBS, f"must be between 0 and {MAX_LOGPROBS}")
            for name in ("logprobs", "prompt_logprobs")
        },
    }
    for name, (is_met, rule) in rules.items():
        if not is_met:
            raise RequestError(f"{name} {rule}.", param=name)
