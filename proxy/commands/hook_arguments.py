"""The arguments that `weir hooks check` and `weir hooks fuzz` share: a hook and its limits."""

import argparse

from hooks.loading.loader import HookSpec
from hooks.pipeline.options import PipelineOptions
from weir_bench.argument_types import json_object, number

_DEFAULTS = PipelineOptions()


def add_hook_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="pkg.module.Class, pkg.module:Class or path/to/file.py:Class")
    parser.add_argument(
        "--args", type=json_object, default={}, help="JSON object with arguments for its __init__"
    )
    parser.add_argument(
        "--hook-timeout",
        type=number,
        default=_DEFAULTS.hook_timeout,
        help="seconds that one call may take (%(default)g)",
    )
    parser.add_argument(
        "--hook-load-timeout",
        type=number,
        default=_DEFAULTS.hook_load_timeout,
        help="seconds that its loading may take (%(default)g)",
    )


def spec_of(options: argparse.Namespace) -> HookSpec:
    return HookSpec(options.path, options.args)


def options_of(options: argparse.Namespace) -> PipelineOptions:
    return PipelineOptions(hook_timeout=options.hook_timeout, hook_load_timeout=options.hook_load_timeout)
