"""Requests that vLLM's second model runner has no room for. Most tests need no vLLM."""

from pathlib import Path
from typing import Any

import pytest

from engine.protocol import EngineError, RequestError
from engine.protocol.options import EngineConfig
from engine.vllm.limits import RunnerLimits
from engine.vllm.options import engine_arguments
from engine.vllm.sampling import request_fields
from tests.engine.vllm.conftest import ARGUMENTS
from tests.engine.vllm.test_sampling import generated, limited

LIMITS = RunnerLimits(allowed_token_ids=4, bad_words=6, bad_word_tokens=14, logit_bias=5, stop_token_ids=3)
EOS = frozenset({1, 2})


def refused_field(sampling: dict[str, Any], **extra: Any) -> str | None:
    try:
        LIMITS.check(limited("xyz", sampling, **extra), EOS)
    except RequestError as error:
        return error.param
    return None


def biases(num: int) -> dict[int, float]:
    return dict.fromkeys(range(10, 10 + num), 1.0)


@pytest.mark.parametrize(
    ("field", "fits", "too_much"),
    [
        ("allowed_token_ids", [9, 8, 7, 6, 6], [9, 8, 7, 6, 5]),
        ("bad_words", ["ax", "bx", "cx", "dx", "ex", "fx"], ["ax", "bx", "cx", "dx", "ex", "fx", "gx"]),
        ("bad_words", ["abcdefg", "hijklmn"], ["abcdefg", "hijklmno"]),
    ],
)
def test_a_limit_on_tokens_that_has_no_room_is_refused(
    field: str, fits: list[Any], too_much: list[Any]
) -> None:
    assert refused_field({}, **{field: fits}) is None
    assert refused_field({}, **{field: too_much}) == field


def test_biases_that_have_no_room_are_refused() -> None:
    assert refused_field({"logit_bias": biases(5)}) is None
    assert refused_field({"logit_bias": biases(6)}) == "logit_bias"


def test_the_last_tokens_of_bad_words_need_room_beside_the_biases() -> None:
    """A bias forbids the end of a word that the prompt begins."""
    words = ["fox", "sox"]
    assert refused_field({"logit_bias": biases(4)}, bad_words=words) is None
    assert refused_field({"logit_bias": biases(5)}, bad_words=words) == "logit_bias"
    assert refused_field({"logit_bias": {**biases(4), ord("x"): 1.0}}, bad_words=words) is None


@pytest.mark.parametrize("prompt", ["xyz", "a f", "a fo"])
def test_a_request_that_is_not_refused_has_room_wherever_it_stands(prompt: str) -> None:
    seq = limited(prompt, {"logit_bias": biases(2), "min_tokens": 1}, bad_words=["fox", "fit", "of"])
    LIMITS.check(seq, frozenset())
    for letter in "foxfit":
        fields = request_fields(seq)
        LIMITS.check_bias(fields)
        generated(seq, ord(letter))


def test_stop_ids_have_no_room_beside_the_model_s_own_only_with_min_tokens() -> None:
    ids = (7, 8, 9, 10)
    assert refused_field({"stop_token_ids": ids}) is None
    assert refused_field({"stop_token_ids": ids[:1], "min_tokens": 2}) is None
    assert refused_field({"stop_token_ids": (1, 2, 7), "min_tokens": 2}) is None
    assert refused_field({"stop_token_ids": ids[:2], "min_tokens": 2}) == "stop_token_ids"
    assert refused_field({"stop_token_ids": ids[:2], "min_tokens": 2, "ignore_eos": True}) == "stop_token_ids"


@pytest.mark.parametrize(
    "sampling", [{"logit_bias": biases(3)}, {"frequency_penalty": 1.0, "presence_penalty": 1.0}]
)
def test_a_rewound_output_that_has_no_room_fails_alone(sampling: dict[str, Any]) -> None:
    """Neither vLLM nor another request sees it (contract 8.5)."""
    seq = generated(limited("xyz", sampling), *range(60, 68))
    LIMITS.check_bias(request_fields(seq))
    seq.rewind(4, (70, 71))
    if "logit_bias" in sampling:
        LIMITS.check_bias(request_fields(seq))
        seq.rewind(4, (72,))
    with pytest.raises(EngineError, match="after a rewind") as error:
        LIMITS.check_bias(request_fields(seq))
    assert error.value.status == 500


@pytest.mark.vllm
@pytest.mark.filterwarnings("default")
def test_limits_are_those_of_the_model_runner_that_runs(
    vllm_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.vllm.launch import Launch

    config = EngineConfig(model=str(vllm_model))
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    launch = Launch.prepare(config, engine_arguments(config, ARGUMENTS))
    assert launch.limits is None
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")  # now: its configuration wants Triton, and so a GPU
    assert launch.limits == RunnerLimits(
        allowed_token_ids=1024, bad_words=128, bad_word_tokens=1024, logit_bias=1024, stop_token_ids=128
    )
    monkeypatch.setenv("VLLM_MAX_NUM_BAD_WORDS", "7")
    assert RunnerLimits.of_second_runner().bad_words == 7
