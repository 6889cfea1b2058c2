"""From sequences to vLLM's requests, and from vLLM's numbers to logprobs. vLLM itself is not needed."""

import math
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest, RequestError, SamplingParams
from engine.protocol.processor_specs import NamedProcessorSpec, PythonProcessorSpec
from engine.sampling.guided.grammar import Grammar
from engine.sampling.logits_processors import Context
from engine.sampling.logits_processors.registry import ProcessorRegistry
from engine.sampling.sampling_state import Logprobs
from engine.scheduling.sequence import Sequence, SequenceGroup
from engine.text.alignment import LOGPROB_FLOOR
from engine.vllm.sampling import (
    KV_TRANSFER,
    WORDS,
    WorkerRequest,
    is_allowed,
    is_for_one_token,
    prefill_fields,
    read_logprobs,
    request_fields,
    structured_outputs,
)

PROMPT = (5, 6, 7)


class Detokenizer:
    def rewound(self, *_: Any) -> "Detokenizer":
        return self


def sequence(echo: bool = False, seed: int | None = None, extra: Any = None, **sampling: Any) -> Sequence:
    params = SamplingParams(**{"max_tokens": 10, **sampling})
    request = GenerationRequest(
        request_id="r", model="m", endpoint="completions", sampling=params, echo=echo, extra=extra or {}
    )
    detokenizer: Any = Detokenizer()
    return SequenceGroup(request).add(
        PROMPT,
        max_tokens=params.max_tokens or 0,
        detokenizer=detokenizer,
        seed=seed,
        eos_token_ids=frozenset({2}),
        echo_texts=("a", "b", "c") if echo else None,
    )


class Words:
    """A tokenizer whose tokens are letters."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) for letter in text.strip()]


def limited(prompt: str, sampling: Mapping[str, Any] = MappingProxyType({}), **extra: Any) -> Sequence:
    """A sequence whose request has these limits. Its tokens are letters."""
    seq = sequence(extra=extra, **sampling)
    seq.token_ids[:] = map(ord, prompt)
    context = Context(Words(), 128, (2,), torch.device("cpu"))  # type: ignore[arg-type]
    _, processors = ProcessorRegistry(context).realize(seq.group.request)
    seq.sampling.processors = tuple(one.start(seq.sampling.token_ids) for one in processors)
    return seq


def test_limits_are_vllms_own_fields() -> None:
    fields = request_fields(limited("xyz", allowed_token_ids=[9, 3], bad_words=["fox", "a"]))
    assert fields["allowed_token_ids"] == [3, 9]
    assert sorted(fields[WORDS]) == [[97], [102, 111, 120]]
    assert "logit_bias" not in fields
    assert not {"allowed_token_ids", WORDS} & request_fields(limited("xyz")).keys()


def test_a_word_that_began_in_vllms_prompt_cannot_end_behind_it() -> None:  # contract 7.7
    seq = limited("a f", bad_words=["fox", "x"])
    assert is_for_one_token(seq)
    assert (request_fields(seq)["max_tokens"], is_allowed(seq, ord("o"))) == (1, True)
    generated(seq, ord("o"))
    fields = request_fields(seq)
    assert (fields["max_tokens"], fields["logit_bias"]) == (1, {ord("x"): float("-inf")})
    generated(seq, ord("r"))
    assert not is_for_one_token(seq)
    assert request_fields(seq)["max_tokens"] == 8


def test_a_token_that_breaks_a_limit_is_noticed() -> None:  # contract 7.5
    seq = limited("a fo", allowed_token_ids=[ord("x"), ord("y"), ord("z")], bad_words=["fox", "z"])
    assert [chr(i) for i in range(128) if is_allowed(seq, i)] == ["y"]


def generated(seq: Sequence, *token_ids: int) -> Sequence:
    seq.token_ids += token_ids
    return seq


def test_vllm_ends_at_the_ids_that_weir_ends_at_and_knows_no_stop_strings() -> None:
    fields = request_fields(sequence(stop=("x",), stop_token_ids=(9, 2)))
    assert (fields["stop_token_ids"], fields["ignore_eos"], fields["detokenize"]) == ([2, 9], True, False)
    assert "stop" not in fields


def test_fields_that_vllm_names_in_the_same_way_pass_through() -> None:
    given: dict[str, Any] = {
        "temperature": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "presence_penalty": 1.0,
        "repetition_penalty": 1.5,
    }
    fields = request_fields(sequence(**given))
    assert {name: fields[name] for name in given} == given


def test_no_top_p_leaves_the_likeliest_token() -> None:
    assert 0 < request_fields(sequence(top_p=0.0))["top_p"] < 1e-5
    assert request_fields(sequence(top_k=-1))["top_k"] == 0


def test_logprobs_are_asked_for_only_where_they_are_needed() -> None:
    assert not {"logprobs", "prompt_logprobs"} & request_fields(sequence()).keys()
    assert request_fields(sequence(logprobs=0))["logprobs"] == 0
    assert request_fields(sequence(best_of=2))["logprobs"] == 0, "candidates are compared by them"
    assert "prompt_logprobs" not in request_fields(sequence(echo=True))
    assert request_fields(sequence(echo=True, logprobs=2))["prompt_logprobs"] == 2


def test_an_output_without_tokens_asks_for_one_that_nobody_uses() -> None:
    fields = request_fields(sequence(echo=True, logprobs=1, max_tokens=0))
    assert fields["max_tokens"] == 1


def test_behind_kept_tokens_the_rest_is_asked_for() -> None:
    seq = generated(sequence(min_tokens=5, seed=3), 10, 11, 12)
    seq.rewind(2, (9,))
    fields = request_fields(seq)
    assert (fields["max_tokens"], fields["min_tokens"]) == (1, 1), "a ban holds for one token"
    generated(seq, 20)
    fields = request_fields(seq)
    assert (fields["max_tokens"], fields["min_tokens"]) == (7, 2)
    assert "logit_bias" not in fields


def test_banned_tokens_are_forbidden_at_their_place_only() -> None:
    seq = generated(sequence(logit_bias={4: 2.0, 12: 1.0}), 10, 11, 12)
    seq.rewind(2, None)
    assert request_fields(seq)["logit_bias"] == {4: 2.0, 12: float("-inf")}
    generated(seq, 13)
    assert request_fields(seq)["logit_bias"] == {4: 2.0, 12: 1.0}
    seq.rewind(2, None)
    assert request_fields(seq)["logit_bias"] == {4: 2.0, 12: float("-inf"), 13: float("-inf")}


def test_penalties_go_on_counting_the_kept_tokens() -> None:
    seq = generated(sequence(frequency_penalty=0.5, presence_penalty=1.0), 10, 10, 12)
    assert "logit_bias" not in request_fields(seq)
    seq.rewind(2, ())
    generated(seq, 13)
    assert request_fields(seq)["logit_bias"] == {10: -2.0, 13: -1.5}


def test_a_seed_stays_until_a_rewind_and_is_another_after_each() -> None:
    seq = generated(sequence(seed=2**64 + 3), 10, 11)
    assert request_fields(seq)["seed"] == 3
    seeds = set()
    for _ in range(3):
        seq.rewind(1, None)
        seeds.add(request_fields(seq)["seed"])
        generated(seq, 11)
    assert len(seeds) == 3
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert request_fields(sequence())["seed"] is None


@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        (Grammar("regex", "a+"), {"regex": "a+"}),
        (Grammar("choice", '["a","b"]'), {"choice": ["a", "b"]}),
        (Grammar("grammar", 'root ::= "a"'), {"grammar": 'root ::= "a"'}),
        (Grammar("lark", 'start: "a"'), {"grammar": 'start: "a"'}),
        (
            Grammar("json", '{"type":"object"}', " "),
            {"json": '{"type":"object","x-guidance":{"whitespace_pattern":" "}}'},
        ),
        (Grammar("json", "{}", ""), {"json": '{"x-guidance":{"whitespace_flexible":false}}'}),
        (Grammar("json", "true", " "), {"json": "true"}),
    ],
)
def test_a_grammar_becomes_a_structured_output(grammar: Grammar, expected: dict[str, Any]) -> None:
    assert structured_outputs(grammar) == expected


LOGPROB = st.floats(-20, 0, width=32) | st.just(float("-inf"))


@given(
    rows=st.lists(st.lists(LOGPROB, min_size=6, max_size=6, unique=True), min_size=1, max_size=4),
    num_top=st.integers(0, 4),
    chosen=st.integers(0, 5),
    is_joined=st.booleans(),
    banned=st.frozensets(st.integers(0, 5), max_size=2),
)
def test_logprobs_are_read_however_vllm_joined_them(
    rows: list[list[float]], num_top: int, chosen: int, is_joined: bool, banned: frozenset[int]
) -> None:
    flat: Any = SimpleNamespace(start_indices=[], end_indices=[], token_ids=[], logprobs=[], ranks=[])
    for row in rows:
        order = sorted(range(6), key=lambda i: -row[i])
        told = [(chosen, order.index(chosen) + 1)] + [(i, r) for r, i in enumerate(order[:num_top], 1)]
        if is_joined:  # as vLLM does: each token once
            told = list(dict(told).items())
        flat.start_indices.append(len(flat.token_ids))
        flat.token_ids += [i for i, _ in told]
        flat.ranks += [r for _, r in told]
        flat.logprobs += [row[i] for i, _ in told]
        flat.end_indices.append(len(flat.token_ids))
    for at, row in enumerate(rows):
        read = read_logprobs(flat, at, num_top, banned)
        best = sorted(range(6), key=lambda i: -row[i])[:num_top]
        assert read.logprob == max(row[chosen], LOGPROB_FLOOR)
        assert read.top == [(i, max(row[i], LOGPROB_FLOOR)) for i in best if i not in banned]


def test_logprobs_of_tokens_asked_for_are_read_in_their_order() -> None:
    fields = request_fields(sequence(logprobs=5, logprob_token_ids=(4, 2, 7)))
    assert (fields["logprobs"], fields["logprob_token_ids"]) == (None, [4, 2, 7])
    flat: Any = SimpleNamespace(
        start_indices=[0, 4], end_indices=[4, 7], token_ids=[2, 4, 2, 7, 9, 4, 2], logprobs=[-1.0, -2.0, -1.0]
    )
    flat.logprobs += [-math.inf, -0.5, -2.0, -3.0]
    read = read_logprobs(flat, 0, 5, frozenset({4}), asked=(7, 4, 2))
    assert read == Logprobs(-1.0, [(7, LOGPROB_FLOOR), (2, -1.0)])
    assert read_logprobs(flat, 1, 0, frozenset(), asked=(2, 4)) == Logprobs(-0.5, [(2, -3.0), (4, -2.0)])


def test_a_worker_gets_what_the_request_says_of_processors() -> None:
    spec = NamedProcessorSpec("p", {"x": 1})
    seq = sequence(logits_processors=(spec,), extra={"vllm_xargs": {"q": {}}, "other": 1})
    args = WorkerRequest.of(seq, "k", ("vllm_xargs", "custom_params")).to_args()
    read = WorkerRequest.from_args(args)
    assert read == WorkerRequest("k", "r", 3, [spec.to_json()], {"vllm_xargs": {"q": {}}})
    assert WorkerRequest.from_args(None) is WorkerRequest.from_args({"kv": 1}) is None


def test_a_processor_that_cannot_leave_its_process_is_refused() -> None:
    with pytest.raises(RequestError, match="cannot leave its process"):
        WorkerRequest.of(sequence(logits_processors=(PythonProcessorSpec(object),)), "k", ())


def test_a_prompt_for_another_engine_is_computed_with_one_token_that_nobody_uses() -> None:
    seq = sequence(echo=True, logprobs=2, seed=3, logit_bias={4: 1.0}, temperature=0.7)
    fields = prefill_fields(seq)
    assert (fields["max_tokens"], fields["prompt_logprobs"], fields["temperature"]) == (1, 2, 0.0)
    assert fields["extra_args"][KV_TRANSFER]["do_remote_decode"]
    assert not {"seed", "logit_bias", "structured_outputs"} & fields.keys()
    seq.prompt_logprobs += [None, None]
    assert "prompt_logprobs" not in request_fields(seq), "the other engine has given them"
