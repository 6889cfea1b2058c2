"""All checks of the CUDA path on a machine with a GPU, and a report of them in Markdown, for an issue.

    make gpu-check PYTHON=python3

`PYTHON` has torch for CUDA, with its Triton, and transformers. First `benchmarks.gpu_first` says whether the
results are right, then `benchmarks.gpu_floor` says how fast they come. The report goes to
`build/gpu-report.md`. The exit status is 1 if anything is wrong, and the report is written all the same.
"""

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

REPORT = Path("build/gpu-report.md")
PARTS = {"Is it right?": "benchmarks.gpu_first", "How fast is it?": "benchmarks.gpu_floor"}
PACKAGES = "torch", "triton", "transformers"


class Part(NamedTuple):
    title: str
    output: str
    status: int


def run(title: str, module: str) -> Part:
    """Run a part. Its output also appears at once."""
    lines: list[str] = []
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return Part(title, "".join(lines), process.returncode)


def report_of(parts: list[Part], facts: dict[str, str]) -> str:
    """The report. Its first line says whether all is right."""
    wrong = [part.title for part in parts if part.status]
    num_wrong = sum(line.endswith("WRONG") for part in parts for line in part.output.splitlines())
    verdict = f"**Wrong**: {', '.join(wrong)} ({num_wrong} results)" if wrong else "**Right**"
    lines = [f"{verdict}. Made by `make gpu-check`.", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    for part in parts:
        end = f" (exit status {part.status})" if part.status else ""
        lines += ["", f"### {part.title}{end}", "", "```text", part.output.strip("\n"), "```"]
    return "\n".join(lines) + "\n"


def facts() -> dict[str, str]:
    """Versions. `nvidia-smi` names the GPUs and the driver."""
    found = {"commit": _said("git", "rev-parse", "--short", "HEAD")}
    found |= {"Python": platform.python_version(), "system": platform.platform()}
    found |= {name: _version(name) for name in PACKAGES}
    found["GPU, driver, memory"] = _said(
        "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"
    )
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _said(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return "; ".join(result.stdout.strip().splitlines())


def main() -> None:
    parts = [run(title, module) for title, module in PARTS.items()]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(report_of(parts, facts()))
    print(f"\n{REPORT}: please put it into an issue. Until one with a right result is there, the pages call")
    print("the CUDA path experimental.")
    sys.exit(any(part.status for part in parts))


if __name__ == "__main__":
    main()
