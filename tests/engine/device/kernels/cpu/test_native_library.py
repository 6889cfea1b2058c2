"""Compiling the kernels in C, and doing without them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.device.kernels.cpu import native_library
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from tests.engine.device.decoders import logits_of, prompts_of
from tests.engine.device.kernels.cpu.builds import builds


def test_without_a_compiler_torch_does_the_work(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Callable[[str], Any]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    native_library.load.cache_clear()
    try:
        path = str(tiny_model("llama").path)
        assert logits_of(ModelRunner.load(EngineConfig(model=path)), prompts_of(5), [])
        with pytest.raises(ValueError, match="no kernels in C"):
            ModelRunner.load(EngineConfig(model=path, cpu_kernels="native"))
    finally:
        native_library.load.cache_clear()


def test_a_user_without_a_home_is_served_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    native_library.load.cache_clear()
    try:
        assert native_library.load(torch.float32) is None
    finally:
        native_library.load.cache_clear()


def test_a_compiler_may_come_with_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "cc -DNOTHING")
    quick = tuple("-O0" if flag == "-O3" else flag for flag in native_library.FLAGS)
    monkeypatch.setattr(native_library, "FLAGS", quick)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native_library.load.cache_clear()
    try:
        assert native_library.load(torch.float32) is not None
    finally:
        native_library.load.cache_clear()


def test_kernels_are_tested_with_each_instruction_set_of_a_processor_once() -> None:
    assert list(builds({"sse2", "avx", "avx2"})) == [
        ("float32", ""),
        ("float32", "-mno-avx2"),
        ("bfloat16", ""),
        ("bfloat16", "-mno-avx"),
    ]
    everything = {"sse2", "avx", "avx2", "avx512f", "avx512_bf16", "amx_bf16"}
    assert len(list(builds(everything))) == 8
    assert list(builds(["neon"])) == [("float32", ""), ("bfloat16", "")]
