"""A wheel that brings the kernels in C, compiled: made from the pure wheel, for processors of x86-64.

    python -m tools.release.kernels FOLDER

compiles the kernels of the tree that it runs in. The files have the same bytes wherever and whenever the same
compiler makes them.
"""

import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from engine.device.kernels.cpu.native_levels import COMMON_FLAGS, COMPILED, DEFINES, FOLDER, LEVELS, file_name

REPRODUCIBLE = ("-s", "-Wl,--build-id=none", "-ffile-prefix-map=.=")
"""No symbols, which name the compiler's temporary files, no id, and no folder."""


class KernelError(Exception):
    """The kernels cannot be compiled here. The message is for the person who makes the release."""


def compile_all(out: Path) -> None:
    """Raises `KernelError`."""
    if platform.machine() != "x86_64":
        raise KernelError(f"a wheel for x86-64 is made on x86-64, and this is {platform.machine()}")
    out.mkdir(parents=True, exist_ok=True)
    names = [path.name for path in sorted(FOLDER.glob("*.c"))]
    for level in LEVELS:
        for dtype in level.dtypes:
            flags = (*level.options, *COMMON_FLAGS, DEFINES[dtype], *REPRODUCIBLE)
            target = str(out.absolute() / file_name(level, dtype))
            made = subprocess.run(
                [*compiler(), *flags, *names, "-lm", "-o", target], cwd=FOLDER, capture_output=True, text=True
            )
            if made.returncode:
                raise KernelError(f"{level.name}: {made.stderr[-1000:]}")


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def compiler_version() -> str:
    """The compiler's name and version, in its own words."""
    said = subprocess.run([*compiler(), "--version"], capture_output=True, check=True, text=True).stdout
    return said.splitlines()[0]


def wheel_with_kernels(pure: Path, source: Path, environment: Mapping[str, str]) -> None:
    """Compile the kernels of the tree `source`, and make a wheel of them and of all that the pure wheel has,
    beside it. `environment`: its variables. Raises `KernelError`."""

    def run(module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        made = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
        if made.returncode:
            raise KernelError(f"{module} failed:\n{made.stdout[-1000:]}{made.stderr[-1000:]}")

    with tempfile.TemporaryDirectory() as scratch:
        run("wheel", "unpack", "--dest", scratch, str(pure.absolute()))
        (tree,) = Path(scratch).iterdir()
        compiled = tree / COMPILED.relative_to(FOLDER.parents[3])
        run("tools.release.kernels", str(compiled))
        (about,) = tree.glob("*.dist-info/WHEEL")
        text = about.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        about.write_text(text.replace("Tag: py3-none-any", f"Tag: py3-none-{platform_tag(compiled)}"))
        subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(tree)], check=True)
        run("wheel", "pack", "--dest-dir", str(pure.parent.absolute()), str(tree))


def platform_tag(folder: Path) -> str:
    """The tag that says the oldest C library with which all the files in a folder can be loaded."""
    needed = [
        int(minor) for file in folder.iterdir() for minor in re.findall(rb"GLIBC_2\.(\d+)", file.read_bytes())
    ]
    return f"manylinux_2_{max(needed)}_x86_64"


if __name__ == "__main__":
    try:
        compile_all(Path(sys.argv[1]))
    except KernelError as error:
        sys.exit(str(error))
