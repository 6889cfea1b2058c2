"""The command `streamguard-bench`."""

import argparse
import asyncio
import json
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

from streamguard_bench.report import html_of, markdown_of, text_of
from streamguard_bench.run import Bench, Result, Size
from streamguard_bench.target import TargetError, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run targets, and write what was found")
    run.add_argument("targets", nargs="+", type=Path, help="a YAML file for each server")
    run.add_argument("--seed", type=int, help="draws the same values again; default: a new one")
    run.add_argument(
        "--leaks", type=int, default=40, help="answers with a value, for each channel (%(default)s)"
    )
    run.add_argument("--html", type=Path, default=Path("streamguard.html"), help="the report (%(default)s)")
    run.add_argument("--json", type=Path, default=Path("streamguard.json"), help="its figures (%(default)s)")
    report = commands.add_parser("report", help="write the HTML of JSON files, as one report")
    report.add_argument("--markdown", action="store_true", help="print a table for a page, too")
    report.add_argument("files", nargs="+", type=Path)
    report.add_argument("--html", type=Path, default=Path("streamguard.html"))
    options = parser.parse_args()
    if options.command == "report":
        reports = [json.loads(path.read_text()) for path in options.files]
        options.html.write_text(html_of(merged(reports)))
        if options.markdown:
            print(markdown_of(merged(reports)))
        return
    try:
        targets = [load(path) for path in options.targets]
    except TargetError as error:
        parser.error(str(error))
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    found: dict[str, Any] = {
        "seed": seed,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "results": [],
    }
    for target in targets:
        print(f"{target.name} ...", file=sys.stderr, flush=True)
        try:
            result = asyncio.run(Bench(target, seed, Size(leaks=options.leaks)).run())
        except TargetError as error:
            print(error, file=sys.stderr)
            result = Result(target.name, error=str(error).partition("\n")[0])
        found["results"].append(result.as_json())
        options.json.write_text(json.dumps(found, indent=1, ensure_ascii=False))
        options.html.write_text(html_of(found))
    print(f"{text_of(found)}\n\nthe report: {options.html}; its figures: {options.json}")
    if any(result["error"] for result in found["results"]):
        sys.exit(1)


def machine() -> str:
    """The processor's name and its cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    cores = sum(line.startswith("processor") for line in lines)
    return f"{', '.join(names) or platform.processor()}, {cores} cores"


def merged(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """One report of several: of a server that is in more than one, the last result. The first one names the
    machine and the seed."""
    results = {result["name"]: result for report in reports for result in report["results"]}
    return {**reports[0], "results": [*results.values()]}


if __name__ == "__main__":
    main()
