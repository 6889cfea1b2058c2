"""`weir bench`: the load generator of `weir_bench`, as a subcommand."""

import argparse

from proxy import __version__
from weir_bench.arguments import add_load_arguments


def add_bench_arguments(parser: argparse.ArgumentParser) -> None:
    add_load_arguments(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    # Imported here: only this command needs these modules, and `weir serve` starts sooner without them.
    from weir_bench.cli import bench

    bench(options, __version__)
