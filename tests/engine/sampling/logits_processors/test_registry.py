"""A request gets the processors that it names, and the mandatory ones (contract 7.3, 7.4)."""

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.protocol import LogitsProcessorError, RequestError
from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors import (
    Context,
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    PythonProcessorSpec,
    Stage,
    TokenIds,
)
from engine.sampling.logits_processors.registry import ProcessorRegistry
from tests.engine.conftest import VOCAB_SIZE, completion
from tests.engine.protocol.test_processor_specs import SPECS
from tests.engine.sampling.logits_processors.builtin.rows import START, THINKING
from tests.engine.sampling.logits_processors.processors import (
    ALL,
    HERE,
    Likes,
    config,
    named,
    names,
    request_of,
)


@pytest.fixture(scope="module")
def registry(context: Context) -> ProcessorRegistry:
    return ProcessorRegistry(context, ALL)


# Finding them.


# Naming them.


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"specs": named(nothing={})}, "logits_processors[0].name"),
        ({"specs": [*named(ban={"ban": [1]}), *named(ban={"ban": [2]})]}, "logits_processors[1].name"),
        ({"specs": named(likes={}, only={})}, "logits_processors[1].params.token_id"),
        ({"specs": named(only={"token_id": 400})}, "logits_processors[0].params.token_id"),
        ({"specs": named(only={"token_id": 3, "more": 1})}, "logits_processors[0].params.more"),
        ({"specs": named(likes={"back": 3, "more": 1})}, "logits_processors[0].params.more"),
        ({"specs": named(ban={"ban": [1, -1]})}, "logits_processors[0].params.ban[1]"),
        ({"specs": [ForcedTokenSequenceSpec((5, 400), 1)]}, "logits_processors[0].params.token_ids[1]"),
        ({"specs": (), "vllm_xargs": {"nobody": 1}}, "vllm_xargs"),
        ({"specs": (), "vllm_xargs": ["ban"]}, "vllm_xargs"),
        ({"specs": (), "vllm_xargs": {"token_id": 400}}, "vllm_xargs.token_id"),
        ({"specs": (), "vllm_xargs": {"only": {"token_id": "x"}}}, "vllm_xargs.only.token_id"),
        ({"specs": (), "custom_params": {"how": "raise"}}, "custom_params"),  # three processors take this
        ({"specs": named(only={"token_id": 3}), "vllm_xargs": {"only": {"token_id": 3}}}, "vllm_xargs.only"),
    ],
)
def test_an_error_names_the_wrong_field(fields: dict[str, Any], param: str, context: Context) -> None:
    """Contract 7.3. `counts` is left out, because it takes any parameters."""
    registry = ProcessorRegistry(context, [c for c in ALL if c.name != "counts"])
    with pytest.raises(RequestError) as caught:
        registry.realize(request_of(*fields.pop("specs"), **fields))
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"specs": named(only={"token_id": 3}, likes={"back": 2})},
        {"vllm_xargs": {"likes": {"back": 2}, "only": {"token_id": 3}}},
        {"custom_params": {"only": {"token_id": 3}, "likes": {"back": 2}}},
        {"vllm_xargs": {"token_id": 3}, "custom_params": {"back": 2}},
    ],
)
def test_vllm_and_sglang_clients_may_use_their_own_fields(asked: dict[str, Any], context: Context) -> None:
    registry = ProcessorRegistry(context, [c for c in ALL if c.name != "counts"])
    request = request_of(*asked.pop("specs", ()), **asked)
    _, wanted = registry.realize(request)
    assert [one.name for one in wanted] == ["only", "likes"]
    only, likes = (one.start(TokenIds([5, 6, 7], 3)).call for one in wanted)
    assert (only.token_id, likes.params.back) == (3, 2)


BUDGET = LogitsProcessorConfig("thoughts", "thinking_budget", THINKING)


@pytest.mark.parametrize("budget", [0, 7])
def test_vllms_budget_of_thinking_is_a_parameter_of_the_registered_processor(
    budget: int, context: Context
) -> None:
    registry = ProcessorRegistry(context, [config("Likes"), BUDGET])
    (wanted,) = registry.realize(request_of(thinking_token_budget=budget))[1]
    assert wanted.name == "thoughts"
    logits, ids = torch.zeros(VOCAB_SIZE), TokenIds([START, *[30] * 7], 1)
    started = wanted.start(ids).call
    assert started is not None
    started(ids, logits)
    assert logits.isinf().any(), "the budget is spent"
    assert names(registry, request_of(thinking_token_budget=-1)) == []


@pytest.mark.parametrize(
    ("configs", "asked"),
    [
        ([], {"thinking_token_budget": 5}),
        ([BUDGET], {"thinking_token_budget": -2}),
        ([BUDGET], {"thinking_token_budget": "5"}),
    ],
)
def test_a_budget_of_thinking_that_cannot_be_kept_is_refused(
    configs: list[LogitsProcessorConfig], asked: dict[str, Any], context: Context
) -> None:
    with pytest.raises(RequestError) as caught:
        ProcessorRegistry(context, configs).realize(request_of(**asked))
    assert caught.value.param == "thinking_token_budget"


def test_ambiguous_parameters_are_refused(registry: ProcessorRegistry) -> None:
    """Both `counts` and `only` take these parameters."""
    with pytest.raises(RequestError, match="more than one logits processor takes this: only, counts"):
        registry.realize(request_of(custom_params={"token_id": 3}))
    assert names(registry, request_of(custom_params={"weight": 3})) == ["counts"]


@pytest.mark.parametrize("configs", [[], [config("Likes", mandatory=True)]])
@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"specs": named(likes={})}, "logits_processors"),
        ({"vllm_xargs": {"back": 1}}, "vllm_xargs"),
        ({"custom_params": {"likes": {}}}, "custom_params"),
    ],
)
def test_a_server_without_selectable_processors_refuses_requests_that_name_one(
    configs: list[LogitsProcessorConfig], asked: dict[str, Any], param: str, context: Context
) -> None:  # contract 7.3
    with pytest.raises(RequestError) as caught:
        ProcessorRegistry(context, configs).realize(request_of(*asked.get("specs", ()), **asked))
    assert caught.value.param == param


def test_empty_fields_are_accepted(context: Context) -> None:
    assert names(ProcessorRegistry(context), request_of(vllm_xargs={}, custom_params=None)) == []


def test_a_mandatory_processor_runs_for_every_request_and_no_request_can_change_it(context: Context) -> None:
    configs = [config("Likes"), config("Only", mandatory=True, params={"token_id": 9}), config("Ban")]
    registry = ProcessorRegistry(context, configs)
    for request in (request_of(), request_of(*named(ban={"ban": [3]}, likes={}))):
        _, wanted = registry.realize(request)
        assert "only" in [one.name for one in wanted]
        (only,) = (one.start(TokenIds([5, 6, 7], 3)).call for one in wanted if one.name == "only")
        assert only.token_id == 9
    for asked in (
        request_of(*named(only={"token_id": 3})),
        *(
            request_of(**{field: params})
            for field in ("vllm_xargs", "custom_params")
            for params in ({"token_id": 3}, {"only": {"token_id": 3}}, {"only": {}, "likes": {}})
        ),
    ):
        with pytest.raises(RequestError):
            registry.realize(asked)


MOODY = """
from pydantic import BaseModel, field_validator

def fail(): raise {error}('hush')

class Begins:
    def __init__(self): fail()
    def __call__(self, input_ids, logits): pass

class Validates(Begins):
    class Params(BaseModel):
        x: int
        @field_validator("x")
        @classmethod
        def _check(cls, x): fail()

class Expresses:
    @staticmethod
    def sampling(params, sampling): fail()
"""


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit", "BaseException"])
@pytest.mark.parametrize(("cls", "params"), [("Begins", {}), ("Validates", {"x": 1}), ("Expresses", {})])
def test_a_processor_that_cannot_be_made_fails_only_its_request(
    cls: str,
    params: dict[str, Any],
    error: str,
    folder: Path,
    context: Context,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # contract 7.6
    (folder / "moody.py").write_text(MOODY.format(error=error))
    monkeypatch.delitem(sys.modules, "moody", raising=False)
    registry = ProcessorRegistry(context, [LogitsProcessorConfig("moody", f"moody.{cls}")])
    with pytest.raises(LogitsProcessorError) as caught:
        request = request_of(*named(moody=params))
        for one in registry.realize(request)[1]:
            one.start(TokenIds([5, 6, 7], 3))
    assert caught.value.processor == "moody"
    assert "hush" not in str(caught.value)
    assert "hush" not in caplog.text
    assert re.search(rf"{error} at \S+/moody\.py:4$", caplog.text, re.MULTILINE)


# The neutral layer (contract 7.4).


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (Stage.AGGREGATED, ["mandatory", "likes", "forced_token_sequence", "forced_token_sequence"]),
        (Stage.DECODE, ["mandatory", "likes", "forced_token_sequence", "forced_token_sequence"]),
        (Stage.PREFILL, ["forced_token_sequence"]),
        (Stage.ENCODE, ["forced_token_sequence"]),
    ],
)
def test_a_stage_runs_only_the_processors_meant_for_it(
    stage: Stage, expected: list[str], context: Context
) -> None:
    mandatory = LogitsProcessorConfig("mandatory", HERE + "Likes", mandatory=True)
    registry = ProcessorRegistry(context, [mandatory, config("Likes")], stage=stage)
    assert names(registry, request_of(*SPECS)) == expected


def test_every_sequence_has_a_fresh_processor(tiny_core: Callable[..., Any]) -> None:  # contract 7.4
    core = tiny_core(logits_processors=ALL)
    made: list[object] = []

    def factory() -> Likes:
        made.append(Likes(Likes.Params()))
        return made[-1]  # type: ignore[return-value]

    specs = (*named(likes={}, counts={}), PythonProcessorSpec(factory))
    group = core.processor.process(completion((5, 6), (7, 8), n=2, logits_processors=specs))
    states = [
        id(started.call or started.params) for seq in group.sequences for started in seq.sampling.processors
    ]
    assert len(set(states)) == len(states) == 4 * 3
    assert len(made) == 4


def test_a_python_processor_of_the_batch_form_fails_its_request(registry: ProcessorRegistry) -> None:
    class Batch:
        def __call__(self, logits: Any, params: Any) -> Any:
            return logits

    (one,) = registry.realize(request_of(PythonProcessorSpec(Batch)))[1]
    with pytest.raises(LogitsProcessorError):
        one.start(TokenIds([5, 6, 7], 3))


def test_a_spec_of_an_unknown_kind_is_refused(registry: ProcessorRegistry) -> None:
    @dataclasses.dataclass(frozen=True)
    class Later(LogitsProcessorSpec):
        kind = "later"

    with pytest.raises(RequestError, match="Later"):
        registry.realize(request_of(Later()))
