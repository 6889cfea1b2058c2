"""Which engine `auto` stands for, on machines that are only described."""

import logging
from typing import Any

import pytest

from proxy.deployment import engine_choice
from proxy.deployment.engine_choice import Machine, choose_engine, engine_of, log_engine, this_machine
from proxy.deployment.read import directory_of
from proxy.settings.model import ModelSettings
from proxy.settings.serve import ServeSettings

CPU = Machine(has_gpu=False, torch_cuda=None, has_vllm=False)
GPU = Machine(has_gpu=True, torch_cuda="12.8", has_vllm=True)


@pytest.mark.parametrize(
    ("options", "machine", "engine", "device"),
    [
        ({"model": "org/some"}, GPU, "vllm", "CUDA"),
        ({}, GPU, "local", "CUDA"),  # the small model
        ({"model": "org/some"}, CPU, "local", "the CPU"),
        ({"model": "org/some"}, CPU._replace(has_vllm=True), "local", "the CPU"),
        ({"model": "org/some"}, GPU._replace(has_vllm=False), "local", "CUDA"),
        ({"model": "org/some"}, GPU._replace(torch_cuda=None), "local", "the CPU"),
        ({"model": "org/some", "device": "cpu"}, GPU, "local", "the CPU"),
        ({"model": "org/some", "quantization": "int8"}, GPU, "local", "CUDA"),
        ({"model": "org/some", "max_num_seqs": 8}, GPU, "vllm", "CUDA"),
        ({"model": "org/some", "vllm": {"seed": 1}}, CPU, "vllm", "the CPU"),
    ],
)
def test_the_machine_and_the_options_choose(
    options: dict[str, Any], machine: Machine, engine: str, device: str
) -> None:
    chosen = choose_engine(ModelSettings(**options), machine)
    assert (chosen.engine, chosen.device) == (engine, device)


def test_a_model_for_guards_runs_on_weir_s_own_code() -> None:
    assert choose_engine(ModelSettings(model="org/some", only_guards=True), GPU).engine == "local"


def test_a_named_engine_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "this_machine", lambda: GPU)
    assert engine_of(ModelSettings(model="org/some")) == "vllm"
    assert engine_of(ModelSettings(model="org/some", engine="local")) == "local"


def test_each_model_of_a_directory_has_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "this_machine", lambda: GPU)
    models = {
        "big": {"model": "org/some"},
        "small": {},
        "guard": {"model": "org/guard", "only_guards": True},
        "echo": {"engine": "echo"},
    }
    directory = directory_of(ServeSettings(models=models))
    assert {name: one.engine for name, one in directory.models.items()} == {
        "big": "vllm",
        "small": "local",
        "echo": "echo",
    }
    assert directory.guard_models["guard"].engine == "local"


@pytest.mark.parametrize(
    ("machine", "options", "level", "text"),
    [
        (CPU, {}, logging.INFO, "m runs on the engine 'local' on the CPU: there is no NVIDIA GPU"),
        (GPU, {}, logging.INFO, "m runs on the engine 'vllm' on CUDA: vLLM is installed."),
        (
            GPU._replace(torch_cuda=None),
            {},
            logging.WARNING,
            "m runs on the engine 'local' on the CPU: the installed torch is built for CPUs."
            " For the GPU: pip install --force-reinstall torch",
        ),
        (
            GPU._replace(has_vllm=False),
            {},
            logging.INFO,
            "m runs on the engine 'local' on CUDA: vLLM is not installed, the proven engine on GPUs:"
            " install the extra 'vllm'",
        ),
        (GPU, {"engine": "local"}, logging.INFO, "on CUDA: the option engine says so"),
    ],
)
def test_one_line_of_the_log_says_which_and_why(
    machine: Machine,
    options: dict[str, Any],
    level: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(engine_choice, "this_machine", lambda: machine)
    (model,) = directory_of(ServeSettings(models={"m": {"model": "org/some", **options}})).models.values()
    with caplog.at_level(logging.INFO, "weir.proxy"):
        log_engine(model)
    ((_, logged_level, line),) = caplog.record_tuples
    assert logged_level == level
    assert text in line


def test_engines_of_other_machines_have_no_such_line(caplog: pytest.LogCaptureFixture) -> None:
    (model,) = directory_of(ServeSettings(engine="echo")).models.values()
    with caplog.at_level(logging.INFO, "weir.proxy"):
        log_engine(model)
    assert not caplog.records


def test_the_machine_says_what_torch_says() -> None:
    torch = pytest.importorskip("torch")
    assert this_machine().torch_cuda == torch.version.cuda
    assert this_machine().has_gpu >= torch.cuda.is_available()


def test_hidden_gpus_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not this_machine.__wrapped__().has_gpu
