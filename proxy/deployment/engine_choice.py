"""Chooses the engine where the settings say `auto`, by what this machine has. Loads no torch and no vLLM."""

import ctypes
import logging
import os
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from engine.protocol.demo import MODEL_DIR
from engine.protocol.parts import MissingPart, how_to_install, load
from engine.sources.names import is_gguf
from proxy.settings.model import AUTO, WITH_LOGITS, ModelSettings, has_vllm

logger = logging.getLogger("weir.proxy")

_CUDA = re.compile(r"^cuda\b[^=\n]*= *'([\d.]+)'", re.MULTILINE)


class Machine(NamedTuple):
    has_gpu: bool
    """Whether there is an NVIDIA GPU that this process may use."""
    torch_cuda: str | None
    """The version of CUDA that the installed torch is built for. None: it is built for CPUs, or missing."""
    has_vllm: bool


class ChosenEngine(NamedTuple):
    engine: str
    """`local` or `vllm`."""
    device: str
    reason: str
    is_amiss: bool = False
    """Whether the operator should change something about the machine."""

    def __str__(self) -> str:
        return f"the engine {self.engine!r} on {self.device}: {self.reason}"


@cache
def this_machine() -> Machine:
    return Machine(_num_gpus() > 0, _torch_cuda(), has_vllm())


def _num_gpus() -> int:
    """NVIDIA GPUs, by NVML: CUDA itself would be initialized in this process, which may still fork."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return 0
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() != 0:
        return 0
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlShutdown()
    return count.value


def _torch_cuda() -> str | None:
    try:
        spec = find_spec("torch")
    except ModuleNotFoundError:  # an import hook forbids torch
        return None
    if spec is None or spec.origin is None:
        return None
    version = Path(spec.origin).with_name("version.py")
    found = _CUDA.search(version.read_text()) if version.is_file() else None
    return found[1] if found else None


def choose_engine(settings: ModelSettings, machine: Machine | None = None) -> ChosenEngine:
    """The engine that `auto` stands for."""
    machine, local_options = machine or this_machine(), settings.local
    is_on_cpu = local_options.device == "cpu"
    device = "CUDA" if machine.has_gpu and machine.torch_cuda and not is_on_cpu else "the CPU"

    def local(reason: str, *, is_amiss: bool = False) -> ChosenEngine:
        return ChosenEngine("local", device, reason, is_amiss)

    if settings.has_vllm_options:
        return ChosenEngine("vllm", "CUDA" if machine.has_gpu else "the CPU", "options of vLLM are set")
    if local_options.model == str(MODEL_DIR):
        return local("it is the small model that ships")
    if is_gguf(local_options.model):
        return local("it is a GGUF file")
    if is_on_cpu:
        return local("the option device says so")
    if not machine.has_gpu:
        return local("there is no NVIDIA GPU")
    if machine.torch_cuda is None:
        reason = "the installed torch is built for CPUs. For the GPU: pip install --force-reinstall torch"
        return local(reason, is_amiss=True)
    if settings.only_guards:
        return local("only guards use the model")
    if own := _only_ours(settings):
        return local(f"vLLM has no option {', '.join(own)}")
    if not machine.has_vllm:
        return local(f"vLLM is not installed, the proven engine on GPUs: {how_to_install('vllm')}")
    return ChosenEngine("vllm", "CUDA", "vLLM is installed. --engine local runs the model on Weir's own code")


def _only_ours(settings: ModelSettings) -> list[str]:
    """The options that are set and that vLLM does not have."""
    try:
        shared, ours = (load(f"engine.vllm.options:{name}", "vLLM") for name in ("SHARED", "OURS"))
    except MissingPart:  # without the code for vLLM there is no vLLM
        return []
    return sorted(settings.local.model_fields_set - shared - ours)


def engine_of(settings: ModelSettings) -> str:
    """The name of the engine, never `auto`."""
    return choose_engine(settings).engine if settings.engine == AUTO else settings.engine


def with_engine(settings: ModelSettings) -> ModelSettings:
    """The settings with the engine's name in place of `auto`."""
    return settings.model_copy(update={"engine": engine_of(settings)})


def describe_engine(model: ModelSettings) -> ChosenEngine | None:
    """Which engine runs the model, on which device, and why. None: the model is not on this machine."""
    if model.engine not in WITH_LOGITS:
        return None
    choice = choose_engine(model)
    if choice.engine == model.engine:
        return choice
    return ChosenEngine(model.engine, choice.device, "the option engine says so", choice.is_amiss)


def log_engine(model: ModelSettings) -> None:
    """One line, before the model is loaded."""
    if choice := describe_engine(model):
        level = logging.WARNING if choice.is_amiss else logging.INFO
        logger.log(level, "%s runs on %s", model.name, choice)
