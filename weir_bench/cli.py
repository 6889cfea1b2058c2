"""`weir bench`: makes a plan of the options, runs the plan, and prints the results."""

import argparse
import asyncio
import math
import random
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from weir_bench.page import page
from weir_bench.plan import Level, Plan, Target
from weir_bench.progress import Progress
from weir_bench.prompts import Dataset, Prompts, WordPrompts
from weir_bench.results import Results
from weir_bench.runner import BenchError, Runner
from weir_bench.tables import tables

_SAME_NAMES = (
    *("endpoint", "num_prompts", "duration", "burstiness", "max_concurrency", "repetitions"),
    *("num_warmups", "timeout", "api_key"),
)
"""Options that a plan has under the same names."""
_BUSY = 0.8
"""Cores. A client that uses more may itself limit the load."""


def bench(options: argparse.Namespace, weir_version: str) -> None:
    """Measure and report. Exits with 1 if requests failed or nothing was measured, with 2 if the options make
    no sense, and with 130 at Ctrl-C, after a report of the requests measured so far."""
    try:
        plan = make_plan(options)
        _check_writable(options.json, options.html)
    except (ValueError, OSError) as error:
        print(f"weir bench: error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    runner = Runner(plan, Progress(disable=options.disable_tqdm))
    try:
        interrupted = asyncio.run(_run(runner))
    except BenchError as error:
        raise SystemExit(f"weir bench: {error}") from error
    results = Results(runner.plan, runner.runs, interrupted=interrupted, weir_version=weir_version)
    if results.runs:
        _report(results, options)
    else:
        print("weir bench: nothing was measured", file=sys.stderr)
    raise SystemExit(130 if interrupted else 1 if results.errors else 0)


async def _run(runner: Runner) -> bool:
    """Returns whether the run was interrupted. `asyncio.run` turns the first Ctrl-C into a cancellation."""
    try:
        await runner.run()
    except asyncio.CancelledError:
        return True
    return False


def _report(results: Results, options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_bytes(results.to_json(detailed=options.save_detailed))
    if options.html:
        options.html.write_text(page(results), encoding="utf-8")
    print("\n".join(results.notes), *(table.text() for table in tables(results)), sep="\n\n")
    for target, errors in results.errors.items():
        for kind, error in errors.items():
            print(f"weir bench: {target.name}: {error.count} × {kind}: {error.example}", file=sys.stderr)
    busiest = max(run.client_cpu for run in results.runs)
    if busiest > _BUSY:
        print(
            f"weir bench: this client took {busiest:.0%} of a core, and may itself limit the load",
            file=sys.stderr,
        )


def make_plan(options: argparse.Namespace) -> Plan:
    """Raises `ValueError` for options that contradict each other, or a dataset that cannot be used."""
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    targets = options.target or [Target(urlsplit(options.url).netloc, options.url)]
    names = [target.name for target in targets]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two targets are called {twice!r}")
    if options.request_rate and options.concurrency:
        raise ValueError("--concurrency makes a closed loop and --request-rate an open one: give one of them")
    if options.max_concurrency and not options.request_rate:
        raise ValueError("--max-concurrency limits an open loop: give --request-rate, or use --concurrency")
    levels = [Level(request_rate=rate) for rate in options.request_rate or ()]
    levels = levels or [Level(concurrency=count) for count in options.concurrency or (1,)]
    bounded = options.num_prompts or (options.duration and math.inf not in (options.request_rate or ()))
    if options.request_rate and not bounded:
        raise ValueError("an open loop needs --num-prompts (at a rate of inf), or --duration")
    return Plan(
        targets=[Target(t.name, t.url, t.model or options.model) for t in targets],
        levels=levels,
        prompts=_prompts(options, seed),
        seed=seed,
        fields=_fields(options),
        slos=dict(options.goodput or ()),
        **{name: getattr(options, name) for name in _SAME_NAMES},
    )


def _prompts(options: argparse.Namespace, seed: int) -> Prompts:
    if options.dataset_path is not None:
        return Dataset.load(options.dataset_path, options.endpoint, seed)
    return WordPrompts(seed, options.prompt_words, options.shared_prefix_words, same=options.same_prompt)


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    fields: dict[str, Any] = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    if options.ignore_eos:
        fields["ignore_eos"] = True
    return {**fields, "stream": True, "stream_options": {"include_usage": True}, **options.extra_body}


def _check_writable(*files: Path | None) -> None:
    """Checked before hours of measuring. Raises `OSError`."""
    for file in files:
        if file is not None:
            with file.open("ab"):
                pass
