"""`weir hooks trace`: what hooks do with one stream, call by call."""

import argparse
from dataclasses import replace
from pathlib import Path

from engine.streams.recording import Recording
from hooks.loading.loader import HookLoadError, LoadedHook
from hooks.testing.play import play_loaded
from hooks.testing.streams import cut, scored, stream_of
from hooks.testing.trace import trace
from proxy.cli.argument_types import places
from proxy.cli.chosen_hooks import add_hook_arguments, check_scores, chosen_settings, load_named
from proxy.cli.dialogue.terminal import harmless
from proxy.cli.leaving import leaving
from proxy.deployment.read import chosen_policy


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", help="the model's words, which come word by word")
    parser.add_argument("--recording", type=Path, metavar="FILE", help="a recording, in place of a text")
    parser.add_argument("--cut", type=places, help="characters after which a chunk ends: 18,32")
    add_hook_arguments(parser)
    parser.set_defaults(run=trace_hooks)


def trace_hooks(options: argparse.Namespace) -> None:
    """Exits with 1 if a hook refuses or fails, and with 2 if nothing can be shown."""
    with leaving("weir hooks trace", OSError, ValueError, HookLoadError):
        settings = chosen_settings(options, options.config, options.hook)
        loaded = load_named(chosen_policy(settings, options.policy).hooks)
        hooks = [replace(hook, screened=None) for hook in loaded]  # each is called with each chunk
        released = play_loaded(hooks, _stream(options, hooks))
    for line in trace(released):
        print(harmless(line))
    raise SystemExit(1 if released.failure else 0)


def _stream(options: argparse.Namespace, hooks: list[LoadedHook]) -> Recording:
    if (options.text is None) is (options.recording is None):
        raise ValueError("either a text or --recording is needed")
    if options.recording is None:
        return cut(scored(stream_of(options.text), hooks), options.cut)
    parsers = {name: getattr(options, name) for name in ("reasoning_parser", "tool_call_parser")}
    recording = stream_of(options.recording, **parsers)
    check_scores(hooks, recording, str(options.recording))
    return cut(recording, options.cut)
