"""Weir's logits processors in SGLang, Dynamo and vLLM, and theirs in Weir's engine."""

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor

from engine.local.engine import LocalEngine
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig, LogitsProcessorConfig
from engine.protocol.processor_specs import ForcedTokenSequenceSpec, NamedProcessorSpec
from engine.sampling.logits_processors import TokenIds
from engine.text.tokenizer import LocalTokenizer
from tests.library.adapters import logits_standins as standins
from tests.library.adapters.logits_standins import SGLangRequest, dynamo_step, sglang_step
from weir.adapters.configured import configured_model
from weir.adapters.logits import asked_processors, served_processors

ADAPTERS = ("sglang", "dynamo", "vllm_logits")


class OnlyPlace:
    """Has the token be 10 and the place's number in the output, until the place `fails`."""

    kind = "mask"

    class Params(BaseModel, extra="forbid"):
        fails: int = 99

    def __init__(self, params: Params) -> None:
        self._fails = params.fails

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        place = len(input_ids) - input_ids.num_prompt_tokens
        if place >= self._fails:
            raise RuntimeError("it failed")
        kept = logits[10 + place].clone()
        logits.fill_(-math.inf)
        logits[10 + place] = kept


PROCESSORS: list[Any] = [
    {"name": "place", "path": f"{__file__}:OnlyPlace"},
    {"name": "allowed", "path": "allowed_tokens"},
]


def configure(folder: Path, patch: pytest.MonkeyPatch, processors: Any) -> None:
    (path := folder / "weir.yaml").write_text(json.dumps({"logits_processors": processors}))
    patch.setenv("WEIR_CONFIG", str(path))
    served_processors.cache_clear()


@pytest.fixture(autouse=True)
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, module in standins.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ADAPTERS:
        monkeypatch.delitem(sys.modules, f"weir.adapters.{name}", raising=False)
    configure(tmp_path, monkeypatch, PROCESSORS)
    yield
    for name in ADAPTERS:
        sys.modules.pop(f"weir.adapters.{name}", None)
    served_processors.cache_clear()


def adapter(name: str) -> Any:
    return importlib.import_module(f"weir.adapters.{name}")


def asks(**named: Any) -> dict[str, Any]:
    return {"logits_processors": [{"name": name, "params": params} for name, params in named.items()]}


def left(row: Tensor) -> list[int]:
    return torch.nonzero(row.isfinite()).flatten().tolist()


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(4, _vocab_size(), generator=torch.Generator().manual_seed(1))


def _vocab_size() -> int:
    config = json.loads((Path(configured_model().model) / "config.json").read_text())
    size: int = config["vocab_size"]
    return size


def _ends() -> list[int]:
    tokenizer = LocalTokenizer.of(configured_model())
    assert tokenizer.eos_token_id is not None
    return [tokenizer.eos_token_id]


def test_sglang_runs_each_row_with_its_own_processors(logits: Tensor) -> None:
    reference = adapter("sglang").REFERENCE
    assert adapter("sglang").Processors.to_str() == reference
    requests = [
        SGLangRequest("a", [1, 2], asks(place={})),
        SGLangRequest("b", [3], asks(allowed={"token_ids": [5, 6]})),
        SGLangRequest("c", [3], asks()),
        SGLangRequest("d", [3], asks(place={"fails": 1})),
    ]
    out = sglang_step(reference, requests, logits)
    assert [left(out[0]), left(out[1]), left(out[3])] == [[10], [5, 6], [10]]
    assert torch.equal(out[2], logits[2])
    assert torch.equal(out[1, 5:7], logits[1, 5:7])
    for one in requests:
        one.output_ids.append(10)
    out = sglang_step(reference, requests[::-1], logits)
    assert [left(out[3]), left(out[2]), left(out[0])] == [[11], [5, 6], _ends()]


def test_sglang_gets_a_name_and_no_code() -> None:
    assert bytes.fromhex(json.loads(adapter("sglang").REFERENCE)["callable"]) == (
        b"cweir.adapters.sglang\nProcessors\n."
    )


@pytest.mark.parametrize(
    "params", [{}, asks(unknown={}), asks(allowed={}), {"logits_processors": 3}, {"logits_processors": "{"}]
)
def test_sglang_lets_a_wrong_request_only_end(params: dict[str, Any], logits: Tensor) -> None:
    requests = [SGLangRequest("a", [1], params), SGLangRequest("b", [1], asks(place={}))]
    out = sglang_step(adapter("sglang").REFERENCE, requests, logits[:2])
    assert [left(row) for row in out] == [_ends(), [10]]


def test_sglang_with_several_places_of_a_sequence_only_ends(logits: Tensor) -> None:
    out = sglang_step(adapter("sglang").REFERENCE, [SGLangRequest("a", [1], asks(place={}))], logits[:2], 2)
    assert [left(row) for row in out] == [_ends()] * 2


def test_dynamo_calls_a_processor_for_each_sequence(logits: Tensor) -> None:
    spec = adapter("dynamo").spec(NamedProcessorSpec("place", {"fails": 1}), ForcedTokenSequenceSpec((7,), 1))
    named, forced = spec.entries
    assert (forced, spec.generation_only) == (standins.ForcedTokenSequenceSpec((7,), 1), True)
    one, other = named.factory(), named.factory()
    assert left(dynamo_step(one, [1, 2], logits[0])) == [10]
    assert left(dynamo_step(one, [1, 2, 10], logits[0])) == _ends()  # it fails, and does not go on
    assert left(dynamo_step(other, [1], logits[0])) == [10]


@pytest.mark.parametrize("asked", [NamedProcessorSpec("unknown", {}), NamedProcessorSpec("allowed", {})])
def test_dynamo_lets_a_wrong_request_only_end(asked: NamedProcessorSpec, logits: Tensor) -> None:
    assert left(dynamo_step(adapter("dynamo").Processor(asked), [1], logits[0])) == _ends()
    assert left(dynamo_step(adapter("dynamo").Processor(asked), [1], logits[0, :3])) != [0, 1, 2]


def test_vllm_runs_the_processors_of_its_batch(logits: Tensor) -> None:
    module = adapter("vllm_logits")
    processor = module.Processors(standins.vllm_config(logits.shape[-1]), torch.device("cpu"), False)
    outputs: list[list[int]] = [[], [], []]
    params = [
        standins.SamplingParams(
            {"logits_processors": json.dumps(asks(place={"fails": 2})["logits_processors"])}
        ),
        standins.SamplingParams(None),
        standins.SamplingParams({"logits_processors": '[{"name": "allowed", "params": {"token_ids": [5]}}]'}),
    ]
    added = [(at, one, [1, 2], outputs[at]) for at, one in enumerate(params)]
    processor.update_state(standins.BatchUpdate(added=added))
    out = processor.apply(logits[:3].clone())
    assert [left(out[0]), left(out[2])] == [[10], [5]]
    assert torch.equal(out[1], logits[1])
    outputs[0].append(10)
    processor.update_state(standins.BatchUpdate(removed=[1], moved=[(2, 1)]))
    out = processor.apply(logits[:2].clone())
    assert [left(row) for row in out] == [[11], [5]]
    outputs[0].append(11)
    processor.update_state(None)
    assert left(processor.apply(logits[:2].clone())[0]) == _ends()


@pytest.mark.parametrize("value", ["[", "3", '[{"name": "unknown"}]', '[{"name": "allowed"}]', [{"nam": 1}]])
def test_vllm_refuses_a_wrong_request(value: Any) -> None:
    validate = adapter("vllm_logits").Processors.validate_params
    validate(standins.SamplingParams({"logits_processors": '[{"name": "place"}]'}))
    with pytest.raises(ValueError, match="logits_processors"):
        validate(standins.SamplingParams({"logits_processors": value}))


def test_a_mandatory_processor_runs_where_all_requests_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logits: Tensor
) -> None:
    configure(tmp_path, monkeypatch, [{**PROCESSORS[0], "mandatory": True}])
    module = adapter("vllm_logits")
    processor = module.Processors(standins.vllm_config(logits.shape[-1]), torch.device("cpu"), False)
    processor.update_state(standins.BatchUpdate(added=[(0, standins.SamplingParams(), [1], [])]))
    assert left(processor.apply(logits[:1].clone())[0]) == [10]
    for refused in (lambda: adapter("sglang").Processors()(logits, []), adapter("dynamo").Processor):
        with pytest.raises(ValueError, match="cannot be mandatory"):
            refused()


def test_errors_have_no_values() -> None:
    with pytest.raises(ValueError, match="logits_processors") as raised:
        asked_processors('"a secret"')
    assert "secret" not in str(raised.value)


async def test_their_processors_run_in_weirs_engine() -> None:
    theirs, standin = "weir.adapters.theirs", standins.__name__
    config = EngineConfig(
        logits_processors=(
            LogitsProcessorConfig("only", f"{theirs}:SGLang", {"path": f"{standin}:OnlyToken"}),
            LogitsProcessorConfig(
                "slow", f"{theirs}:TensorRTLLM", {"path": f"{standin}:SlowDown", "args": {"by": 1e9}}
            ),
            LogitsProcessorConfig("hot", f"{standin}:Hotter", {"temperature": 2.0}),
        )
    )
    engine = LocalEngine(config)
    await engine.start()
    try:

        async def ids(*asked: NamedProcessorSpec) -> list[int | None]:
            request = GenerationRequest(
                request_id="r",
                model="m",
                endpoint="completions",
                prompts=("Who are you?",),
                sampling=SamplingParams(
                    max_tokens=6, temperature=0, ignore_eos=True, logits_processors=asked
                ),
            )
            return [token.id async for delta in engine.generate(request) for token in delta.tokens]

        assert await ids(NamedProcessorSpec("only", {"only": 40})) == [40] * 6
        assert len({*await ids(NamedProcessorSpec("slow", {}))}) == 6
        assert await ids(NamedProcessorSpec("hot", {})) == await ids()
    finally:
        await engine.aclose()
