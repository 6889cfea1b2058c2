"""The kernels in C, compiled for each instruction set that this machine has."""

import functools
from collections.abc import Collection, Iterator

import pytest
import torch

from engine.device.kernels.cpu import native_library
from engine.device.kernels.cpu.native_library import Library

LADDERS = {
    "float32": [("avx512f", ""), ("avx2", "-mno-avx512f"), ("avx", "-mno-avx2")],
    "bfloat16": [
        ("amx_bf16", ""),
        ("avx512_bf16", "-mno-amx-bf16"),
        ("avx512f", "-mno-avx512bf16"),
        ("avx2", "-mno-avx512f"),
        ("sse2", "-mno-avx"),
    ],
}
"""By element type: the instruction sets that the code makes use of, each with the compiler's option that
leaves out those above it. With AVX and with less, the types' code differs in loads and stores only, so each
of these two has one type."""
OFTEN = ("", "-mno-avx2", "-mno-avx512f")


def builds(features: Collection[str]) -> Iterator[tuple[str, str]]:
    """The element types, and the compiler's options for each instruction set of a processor's `features`."""
    for dtype, ladder in LADDERS.items():
        options = [option for feature, option in ladder if feature in features]
        yield from ((dtype, option) for option in ["", *options[1:]])


HERE = list(builds(native_library.processor().decode().split()))
"""The builds that this machine can run."""
BUILDS = [
    pytest.param(build, marks=() if build[1] in OFTEN else pytest.mark.slow, id=" ".join(build))
    for build in HERE
]
"""A build takes ten seconds of a core, so most tests run the code of this processor and of one with less."""


def build_of(dtype: str, options: str = "") -> Library:
    """The library, compiled once for all test files and all runs: the user's cache keeps each build."""
    with pytest.MonkeyPatch.context() as patch:
        if options:
            patch.setenv("CC", f"cc {options}")
        native_library.load.cache_clear()
        library = native_library.load(getattr(torch, dtype))
    native_library.load.cache_clear()
    assert library is not None
    return library


library_of = functools.cache(build_of)
