"""From Weir's sequences to vLLM's requests, and from vLLM's numbers to Weir's logprobs. Loads no vLLM.

vLLM gets token ids and gives token ids. It knows no stop strings: with vLLM's own detokenizer, ids of tokens
come out before their text is decided.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from engine.protocol import RequestError
from engine.sampling.guided.grammar import Grammar
from engine.sampling.sampling_state import Logprobs
from engine.scheduling.sequence import Sequence
from engine.text.alignment import LOGPROB_FLOOR

KV_TRANSFER = "kv_transfer_params"
"""vLLM's name for the values by which one engine finds a prompt's keys and values in another."""
_NO_REMOTE = dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port"))
MIN_TOP_P = 1e-6
"""vLLM takes no 0. So little leaves only the most likely token."""
WORDS = "bad_words_token_ids"
"""The tokens of `bad_words`. vLLM has no field that takes them: its own tokenizer would find fewer."""
EXTRA = "weir"
"""The name under which Weir's own arguments are in vLLM's `extra_args`."""


class FlatLogprobs(Protocol):
    """vLLM's logprobs of several places, in flat lists. At each place, the output's own token comes first."""

    start_indices: list[int]
    end_indices: list[int]
    token_ids: list[int]
    logprobs: list[float]
    ranks: list[int | None]


def request_fields(seq: Sequence) -> dict[str, Any]:
    """The fields of vLLM's `SamplingParams` that let a sequence continue from where it is.

    After a rewind, the tokens that are kept are a part of vLLM's prompt. If tokens are forbidden at this
    place alone, the request is for one token: a bias holds for all tokens of a request.
    """
    p, state = seq.sampling.params, seq.sampling
    room = max(1, seq.max_tokens - seq.num_output_tokens)
    max_tokens = 1 if is_for_one_token(seq) else room
    fields: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min(max(0, p.min_tokens - seq.num_output_tokens), max_tokens),
        "temperature": p.temperature,
        "top_k": max(p.top_k, 0),
        "top_p": max(p.top_p, MIN_TOP_P),
        "min_p": p.min_p,
        "presence_penalty": p.presence_penalty,
        "frequency_penalty": p.frequency_penalty,
        "repetition_penalty": p.repetition_penalty,
        "seed": _seed(seq),
        "ignore_eos": True,  # the ends are all in `stop_token_ids`
        "stop_token_ids": sorted({*state.eos_token_ids, *p.stop_token_ids}),
        "detokenize": False,
        "flat_logprobs": True,
    }
    if p.logprobs is not None or seq.group.has_choice:
        fields["logprobs"] = p.logprobs or 0
    if p.logprob_token_ids:  # in place of the top alternatives
        fields |= {"logprobs": None, "logprob_token_ids": list(p.logprob_token_ids)}
    if seq.needs_prompt_logprobs:
        fields["prompt_logprobs"] = seq.group.request.num_prompt_logprobs
    if bias := _bias(seq) | dict.fromkeys([*state.banned_here, *_ends_of_begun_words(seq)], float("-inf")):
        fields["logit_bias"] = bias
    if (allowed := state.limits.get("allowed_token_ids")) is not None:
        fields["allowed_token_ids"] = sorted(allowed.token_ids)
    if (words := state.limits.get("bad_words")) is not None:
        fields[WORDS] = [list(word) for word in words.sequences]
    if state.guide is not None:
        fields["structured_outputs"] = structured_outputs(state.guide.grammar.source)
    return fields


def prefill_fields(seq: Sequence) -> dict[str, Any]:
    """The fields of a request that only computes the sequence's prompt, and leaves it to another engine.

    vLLM draws a token for it, which nobody uses: the other engine draws the output's first token, with the
    grammar, the logits processors and the seed (contract 7.4).
    """
    fields: dict[str, Any] = {
        "max_tokens": 1,
        "temperature": 0.0,
        "detokenize": False,
        "flat_logprobs": True,
        "extra_args": {KV_TRANSFER: {"do_remote_decode": True, "do_remote_prefill": False} | _NO_REMOTE},
    }
    if seq.needs_prompt_logprobs:
        fields["prompt_logprobs"] = seq.group.request.num_prompt_logprobs
    return fields


def is_for_one_token(seq: Sequence) -> bool:
    """Whether vLLM is asked for the next token alone, because it may not be what later ones may be."""
    return bool(seq.sampling.banned_here) or _has_begun_word(seq)


def is_allowed(seq: Sequence, token_id: int) -> bool:
    """Whether `allowed_token_ids` and `bad_words` let this token come next."""
    limits, token_ids = seq.sampling.limits, seq.token_ids
    if (allowed := limits.get("allowed_token_ids")) is not None and token_id not in allowed.token_ids:
        return False
    return (words := limits.get("bad_words")) is None or token_id not in words.forbidden(token_ids)


def _has_begun_word(seq: Sequence) -> bool:
    """Whether a bad word may have begun in vLLM's prompt, where vLLM does not look for it."""
    words = seq.sampling.limits.get("bad_words")
    return words is not None and words.is_begun(seq.token_ids)


def _ends_of_begun_words(seq: Sequence) -> list[int]:
    return seq.sampling.limits["bad_words"].forbidden(seq.token_ids) if _has_begun_word(seq) else []


def _bias(seq: Sequence) -> dict[int, float]:
    """The request's biases. vLLM takes the tokens that a rewind kept for a part of the prompt, and does not
    penalize them, so that biases have to. A presence penalty counts a kept token twice if it comes again."""
    p = seq.sampling.params
    bias = dict(p.logit_bias)
    if seq.was_rewound and (p.frequency_penalty or p.presence_penalty):
        kept = seq.token_ids[seq.num_prompt_tokens :]
        for token_id in set(kept):
            penalty = p.frequency_penalty * kept.count(token_id) + p.presence_penalty
            bias[token_id] = bias.get(token_id, 0.0) - penalty
    return bias


def _seed(seq: Sequence) -> int | None:
    """The sequence's seed. A request that continues a sequence begins a new row of draws."""
    seed, place = seq.sampling.seed, seq.num_output_tokens
    if seed is None or not seq.was_rewound:
        return None if seed is None else seed % 2**63
    digest = hashlib.sha256(f"{seed} {place} {seq.sampling.num_rewinds}".encode()).digest()
    return int.from_bytes(digest[:7])


def structured_outputs(grammar: Grammar) -> dict[str, Any]:
    """The fields of vLLM's `StructuredOutputsParams`."""
    match grammar.kind:
        case "json":
            return {"json": _with_whitespace(grammar.text, grammar.whitespace)}
        case "choice":
            return {"choice": orjson.loads(grammar.text)}
        case "regex":
            return {"regex": grammar.text}
        case _:
            return {"grammar": grammar.text}


def _with_whitespace(schema: str, whitespace: str) -> str:
    """The schema, with the whitespace that may be between JSON's tokens, in llguidance's own keyword."""
    value = orjson.loads(schema)
    if not isinstance(value, dict):
        return schema
    option = {"whitespace_pattern": whitespace} if whitespace else {"whitespace_flexible": False}
    return orjson.dumps({**value, "x-guidance": {**value.get("x-guidance", {}), **option}}).decode()


def read_logprobs(
    flat: FlatLogprobs, at: int, num_top: int, banned: frozenset[int], asked: Iterable[int] = ()
) -> Logprobs:
    """The logprobs at a place. The alternatives leave out banned tokens. `asked`: as `logprob_token_ids`."""
    start, end = flat.start_indices[at], flat.end_indices[at]
    ids, logprobs = flat.token_ids, flat.logprobs
    chosen = max(logprobs[start], LOGPROB_FLOOR)
    if asked:
        logprob_of = dict(zip(ids[start:end], logprobs[start:end], strict=True))
        return Logprobs(chosen, [(i, max(logprob_of[i], LOGPROB_FLOOR)) for i in asked if i not in banned])
    if not num_top:
        return Logprobs(chosen, [])
    if end - start > num_top:
        # The alternatives, in their order, come after the sequence's own token.
        places: Iterable[int] = range(start + 1, start + 1 + num_top)
    else:
        # vLLM has joined several outputs. The own token, which is an alternative, is here once.
        places = sorted(range(start, end), key=lambda i: flat.ranks[i] or 0)
    return Logprobs(
        chosen, [(ids[i], max(logprobs[i], LOGPROB_FLOOR)) for i in places if ids[i] not in banned]
    )


class WorkerRequest(NamedTuple):
    """All that Weir's logits processors in vLLM's worker must know of a request."""

    key: str
    """The name of the sequence."""
    request_id: str
    num_prompt_tokens: int
    """After a rewind, vLLM's prompt is longer."""
    specs: list[dict[str, Any]]
    extra: dict[str, Any]

    @classmethod
    def of(cls, seq: Sequence, key: str, extra_names: tuple[str, ...]) -> "WorkerRequest":
        """Raises `RequestError` for a processor that cannot leave its process."""
        request = seq.group.request
        try:
            specs = [spec.to_json() for spec in request.sampling.logits_processors]
        except TypeError as error:
            raise RequestError(f"logits_processors: {error}.", param="logits_processors") from error
        extra = {name: request.extra[name] for name in extra_names if name in request.extra}
        return cls(key, request.request_id, seq.num_prompt_tokens, specs, extra)

    def to_args(self) -> dict[str, Any]:
        return {EXTRA: self._asdict()}

    @classmethod
    def from_args(cls, args: Mapping[str, Any] | None) -> "WorkerRequest | None":
        given = (args or {}).get(EXTRA)
        return None if given is None else cls(**given)
