"""Kernels that come compiled: which file is for which processor, and when none is loaded."""

import logging
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.device.kernels.cpu import native_levels, native_library
from engine.device.kernels.cpu.native_levels import COMMON_FLAGS, DEFINES, FOLDER, LEVELS, Level, shipped

ALL = frozenset().union(*(level.features for level in LEVELS))
V4 = next(level.features for level in LEVELS if level.name == "x86-64-v4")
V3 = next(level.features for level in LEVELS if level.name == "x86-64-v3")
HERE = frozenset(native_library.processor().decode().split())


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the files, empty. No compiler is named, and the cache is empty, too."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    monkeypatch.setattr(native_levels, "COMPILED", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    native_library.load.cache_clear()
    yield folder
    native_library.load.cache_clear()


def put(folder: Path, level: Level, dtype: str, content: bytes = b"") -> Path:
    path = folder / native_levels.file_name(level, dtype)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("dtype", "features", "name"),
    [
        ("bfloat16", ALL, "x86-64-v4-bf16"),
        ("bfloat16", ALL - {"avx512vbmi"}, "x86-64-v4"),
        ("float32", ALL, "x86-64-v4"),
        ("float32", V4 - {"avx512dq"}, "x86-64-v3"),
        ("bfloat16", V3 | {"avx512f"}, "x86-64-v3"),
        ("bfloat16", V3 - {"fma"}, None),
        ("float32", {"asimd"}, None),
    ],
)
def test_a_processor_gets_the_best_file_whose_instructions_it_has(
    compiled: Path, dtype: str, features: frozenset[str], name: str | None
) -> None:
    files = {
        level.name: put(compiled, level, one) for level in LEVELS for one in level.dtypes if one == dtype
    }
    assert shipped(dtype, features) == (files[name] if name else None)


def test_a_file_of_another_source_is_not_taken(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(compiled, LEVELS[-1], "float32")
    assert shipped("float32", V3)
    changed = [*native_levels.sources(), b"/* more */"]
    monkeypatch.setattr(native_levels, "sources", lambda: changed)
    assert shipped("float32", V3) is None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flags of a file that compiles quickly, and has the name of one that does not."""
    flags = ["-O0" if flag == "-O3" else flag for flag in COMMON_FLAGS]
    monkeypatch.setattr(native_library, "FLAGS", ("-march=native", *flags))
    return flags


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are of x86-64")
def test_a_file_that_came_is_loaded_without_a_compiler(
    compiled: Path, quick: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fitting = (one for one in LEVELS if "float32" in one.dtypes and one.features <= HERE)
    if (level := next(fitting, None)) is None:
        pytest.skip("this processor has no level")
    path = compiled / native_levels.file_name(level, "float32")
    sources = map(str, sorted(FOLDER.glob("*.c")))
    command = ["cc", *level.options, *quick, DEFINES["float32"], *sources, "-lm", "-o", str(path)]
    subprocess.run(command, check=True)
    caplog.set_level(logging.INFO, "weir.engine")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        library = native_library.load(torch.float32)
    assert library is not None
    assert caplog.messages[-1].endswith("as they came")
    assert library.functions.linear_steps(5) == 5
    native_library.load.cache_clear()
    monkeypatch.setenv("CC", "cc")
    assert native_library.load(torch.float32) is not None
    assert caplog.messages[-1].endswith("compiled for this processor")


def test_a_file_that_cannot_be_loaded_gives_way_to_the_compiler(
    compiled: Path, quick: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "processor", lambda: " ".join(V3).encode())
    broken = put(compiled, LEVELS[-1], "float32", b"no library")
    caplog.set_level(logging.INFO, "weir.engine")
    assert native_library.load(torch.float32) is not None
    assert caplog.messages[-2].startswith(f"{broken.name} cannot be loaded: ")
    assert caplog.messages[-1].endswith("compiled for this processor")
