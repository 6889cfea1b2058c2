"""The kernels in C as a wheel brings them: compiled for levels of x86-64, not for the processor at hand.

The name of a level's file has a digest of the kernels' source, so that no other version's file is loaded.
Nothing here loads torch: `tools.release.kernels` compiles the files where there is none.
"""

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
COMPILED = FOLDER / "compiled"
"""The folder of the files. Only a wheel for x86-64 has it."""
FAST_MATH = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math")
COMMON_FLAGS = ("-O3", "-mprefer-vector-width=512", "-fopenmp", *FAST_MATH, "-shared", "-fPIC")
DEFINES = {"float32": "-DSCALAR_F32", "bfloat16": "-DSCALAR_BF16"}
"""The compiler's option for each element type."""

_V2 = frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"])
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


class Level(NamedTuple):
    name: str
    options: tuple[str, ...]
    """The compiler's."""
    features: frozenset[str]
    """Those that a processor must have, as Linux names them."""
    dtypes: tuple[str, ...]
    """The element types whose code is another than in the level below."""


LEVELS = (
    # The code asks at run time whether it may use AMX, so this one is also for processors without it.
    Level(
        "x86-64-v4-bf16",
        ("-march=x86-64-v4", "-mavx512bf16", "-mavx512vbmi", "-mamx-tile", "-mamx-bf16"),
        _V4 | {"avx512_bf16", "avx512vbmi"},
        ("bfloat16",),
    ),
    Level("x86-64-v4", ("-march=x86-64-v4",), _V4, ("float32", "bfloat16")),
    Level("x86-64-v3", ("-march=x86-64-v3",), _V3, ("float32", "bfloat16")),
)
"""The best one first."""


def shipped(dtype: str, features: Collection[str]) -> Path | None:
    """The best file for a processor with these features. None: there is none of this source for it."""
    found = (COMPILED / file_name(level, dtype) for level in LEVELS if level.features.issubset(features))
    return next(filter(Path.exists, found), None)


def file_name(level: Level, dtype: str) -> str:
    options = " ".join((*COMMON_FLAGS, *level.options)).encode()
    digest = hashlib.sha256(b"\0".join([*sources(), options])).hexdigest()[:24]
    return f"kernels-{dtype}-{level.name}-{digest}.so"


def sources() -> list[bytes]:
    """The text of the kernels."""
    return [path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]"))]
