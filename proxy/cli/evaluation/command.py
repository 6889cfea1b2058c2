"""`weir eval-guard`: measures what guards find in labelled exchanges, how late, and at what cost."""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from engine.streams.recording import Recording
from hooks.loading.loader import HookLoadError
from hooks.pipeline.pipeline import Pipeline
from hooks.testing import Judgement
from hooks.testing.probe import Probe
from hooks.testing.streams import cut, num_places, stream_of
from proxy.cli.argument_types import number_or_zero
from proxy.cli.chosen_hooks import add_hook_arguments, check_scores, chosen_settings, load_named
from proxy.cli.evaluation.plot import plot
from proxy.cli.evaluation.report import Report
from proxy.cli.evaluation.trial import Trial, play_exchange
from proxy.cli.labelled.datasets import load
from proxy.cli.labelled.exchange import Exchange
from proxy.cli.leaving import leaving
from proxy.deployment.guard_models import DeployedModels
from proxy.deployment.read import chosen_policy, directory_of
from proxy.workers.signals import run_interruptible

_PROGRESS_EVERY = 50
Cut = Callable[[Recording], Recording]


def add_eval_guard_arguments(parser: argparse.ArgumentParser) -> None:
    """measure what guards find in labelled exchanges, and how late"""
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="labelled exchanges, a public dataset's file (CSV, JSON, parquet), or a folder of these",
    )
    for name, what in (("unsafe", "a guard should object to"), ("safe", "no guard should object to")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            type=Path,
            metavar="FILE",
            help=f"exchanges or recordings whose replies {what}; repeat",
        )
    add_hook_arguments(parser)
    parser.add_argument(
        "--cut",
        type=_cut,
        default="tokens",
        help="chunks of a reply: tokens, whole, or a number of characters (tokens)",
    )
    parser.add_argument(
        "--speed",
        type=number_or_zero,
        default=0.0,
        metavar="TOKENS",
        help="tokens a second of a reply, for the time that text is held; 0: without waiting (%(default)g)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON (-: print it)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw detection by delay (SVG)")
    parser.set_defaults(run=eval_guard)


def eval_guard(options: argparse.Namespace) -> None:
    """Exits with 2 if a file or a hook cannot be used, and with 1 if a hook failed."""
    with leaving("weir eval-guard", OSError, ValueError, HookLoadError):
        exchanges = [_parsed(one, options) for one in _exchanges(options)]
        report = run_interruptible(_report(options, exchanges))
        if options.plot is not None:
            options.plot.write_bytes(plot(report))
        written = json.dumps(report.as_json(), indent=1)
        if options.json is not None and str(options.json) != "-":
            options.json.write_text(written + "\n", encoding="utf-8")
    print(written if str(options.json) == "-" else "\n".join(report.lines()))
    raise SystemExit(1 if report.num_failed else 0)


def _exchanges(options: argparse.Namespace) -> Iterator[Exchange]:
    labels = ((None, options.files), (True, options.unsafe), (False, options.safe))
    if not any(paths for _, paths in labels):
        raise ValueError("a FILE is needed, or --unsafe or --safe")
    for is_unsafe, paths in labels:
        for path in paths:
            yield from load(path, is_unsafe=is_unsafe)


def _parsed(exchange: Exchange, options: argparse.Namespace) -> Exchange:
    """The exchange with its reasoning and tool calls on their channels."""
    parsers = options.reasoning_parser, options.tool_call_parser
    if parsers == (None, None):
        return exchange
    stream = stream_of(exchange.stream, reasoning_parser=parsers[0], tool_call_parser=parsers[1])
    return replace(exchange, stream=stream)


async def _report(options: argparse.Namespace, exchanges: Sequence[Exchange]) -> Report:
    settings = chosen_settings(options, options.config, options.hook)
    chosen = chosen_policy(settings, options.policy)
    judgements: list[Judgement] = []
    hooks = [Probe(hook, judgements).hook for hook in load_named(chosen.hooks)]
    if not hooks:
        raise ValueError("--hook or --config is needed: there is no guard to measure")
    for exchange in exchanges:
        check_scores(hooks, exchange.stream, exchange.name)
    models = DeployedModels(directory_of(settings), {})
    async with aclosing(models), aclosing(Pipeline(hooks, options=chosen.options)) as pipeline:
        await pipeline.give_models(models)
        before = _computed_tokens(models)
        trials = [one async for one in _trials(pipeline, judgements, exchanges, options)]
        computed = _computed_tokens(models) - before
    return Report(trials, computed if models.guards else None)


def _computed_tokens(models: DeployedModels) -> int:
    return sum(model.stats().computed_tokens_total for _, model in models.guards)


async def _trials(
    pipeline: Pipeline,
    judgements: list[Judgement],
    exchanges: Sequence[Exchange],
    options: argparse.Namespace,
) -> AsyncIterator[Trial]:
    for number, exchange in enumerate(exchanges, start=1):
        stream = options.cut(exchange.stream)
        yield await play_exchange(pipeline, judgements, exchange, stream=stream, speed=options.speed)
        if number % _PROGRESS_EVERY == 0 and sys.stderr.isatty():
            print(f"\r{number} of {len(exchanges)}", end="", file=sys.stderr, flush=True)


def _cut(text: str) -> Cut:
    """Raises `argparse.ArgumentTypeError` for another word."""
    if text == "tokens":
        return lambda stream: stream
    if text == "whole":
        return lambda stream: cut(stream, ())
    if text.isdecimal() and int(text) > 0:
        size = int(text)
        return lambda stream: cut(stream, range(size, num_places(stream), size))
    raise argparse.ArgumentTypeError(f"{text!r} is not tokens, whole, or a number of characters")
