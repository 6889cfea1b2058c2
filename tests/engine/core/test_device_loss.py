"""A device that is lost fails every later call. The engine ends at once, wherever it learns of the loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from engine.core import engine_core
from engine.core.drafting.draft_model import DraftModel
from engine.device import cuda
from engine.execution.step_scores import StepScores
from engine.protocol import GenerationRequest
from engine.protocol.errors import DeviceLostError
from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.sampler import Drawn, Sampler
from tests.engine.conftest import TinyCore
from tests.engine.device.steps import graphs_of
from tests.engine.execution.probes.made import make_probe, save_probe
from tests.engine.sampling.logits_processors.processors import HERE, Likes, named

ERRORS = {
    "torch": torch.AcceleratorError("CUDA error: device-side assert triggered"),
    "cublas": RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"),
    "triton": RuntimeError("Triton Error [CUDA]: unspecified launch failure"),
}


class Device:
    """Once `fail` was called, it is lost or, if `answers`, as before."""

    def __init__(self, error: Exception) -> None:
        self.kind, self.text = type(error), str(error)
        self.answers = False
        self.has_failed = False

    def fail(self, *_: object, **__: object) -> NoReturn:
        self.has_failed = True
        raise self.kind(self.text)  # an error of its own: it keeps the frames that it passes

    def synchronize(self) -> None:
        if self.has_failed and not self.answers:
            raise self.kind(self.text)


@pytest.fixture(params=ERRORS.values(), ids=ERRORS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device(request.param)
    monkeypatch.setattr(cuda, "synchronize", device.synchronize)
    return device


Break = Callable[[TinyCore, Device, pytest.MonkeyPatch], None]


def forward(core: TinyCore, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.core.runner.model, "forward", device.fail)


def graphs(core: TinyCore, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    core.core.runner.graphs = graphs_of(core.core.runner, capture=lambda run: device.fail)


def method(owner: Any, name: str) -> Break:
    """The method, or the function of a module, fails."""
    return lambda core, device, monkeypatch: monkeypatch.setattr(owner, name, device.fail)


PLACES: dict[str, Break] = {
    "processors": method(Likes, "__call__"),
    "forward": forward,
    "graphs": graphs,
    "draw": method(Sampler, "draw"),
    "read": method(Drawn, "read"),
    "prompt logprobs": method(engine_core, "logprobs_of"),
    "scores leave": method(StepScores, "begin"),
    "scores arrive": method(StepScores, "give"),
    "drafts": method(DraftModel, "draft"),
}


@pytest.fixture(scope="module")
def core(tiny_core: Callable[..., TinyCore], tiny_model: Any, tmp_path_factory: Any) -> TinyCore:
    """With a probe, a draft model and a logits processor."""
    model: Path = tiny_model("llama").path
    probe = save_probe(tmp_path_factory.mktemp("probe"), make_probe(model, "linear", ("model.norm",)))
    return tiny_core(
        probes=(probe,),
        speculative_model=str(model),
        num_speculative_tokens=2,
        logits_processors=(LogitsProcessorConfig(name="likes", path=f"{HERE}Likes"),),
    )


def requests(
    core: TinyCore, completion_request: Callable[..., GenerationRequest]
) -> tuple[list[Any], Callable[[], None]]:
    """Two groups that wait, and what drops all that is left of them."""
    options: dict[str, Any] = {"echo": True, "logprobs": 1, "logits_processors": named(likes={})}
    asked = [completion_request((7, 8, i), max_tokens=5, **options) for i in (9, 10)]
    groups = [core.add(request) for request in asked]

    def drop() -> None:
        for group in groups:
            core.core.abort(group)

    return groups, drop


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_the_loss_ends_the_engine_at_once(
    place: Break,
    device: Device,
    core: TinyCore,
    completion_request: Callable[..., GenerationRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups, drop = requests(core, completion_request)
    with monkeypatch.context() as patch, pytest.raises(DeviceLostError) as lost:
        place(core, device, patch)
        core.run()
    core.core.runner.graphs = None
    drop()
    assert device.has_failed
    assert not core.errors.keys() & set(groups)  # the thread ends them, with all others
    assert "CUDA" not in str(lost.value)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_an_error_of_a_device_that_answers_costs_at_most_the_step_s_requests(
    place: Break,
    device: Device,
    core: TinyCore,
    completion_request: Callable[..., GenerationRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device.answers = True
    groups, _ = requests(core, completion_request)
    with monkeypatch.context() as patch:
        place(core, device, patch)
        core.run()
    core.core.runner.graphs = None
    assert device.has_failed
    assert {core.errors[group].status for group in groups if group in core.errors} <= {500}
    assert core.core.block_manager.num_used == 0
    later = core.add(completion_request((7, 8, 9), max_tokens=5, ignore_eos=True))
    core.run()
    assert len(core.answers(later)[0].ids) == 5
