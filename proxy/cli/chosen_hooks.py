"""The hooks and parsers that a command runs on recorded answers: those of options, or of a settings file."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.protocol.parts import known_parsers
from engine.streams.recording import Recording
from hooks.loading.loader import HookSpec, LoadedHook, load_hook
from proxy.settings.serve import ServeSettings, load_settings


def add_hook_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hook",
        action="append",
        default=[],
        help="pkg.module.Class or path/to/file.py:Class; repeat in order",
    )
    parser.add_argument("--config", help="a YAML file of weir serve; its hooks and parsers are used")
    parser.add_argument("--policy", help="the policy of the YAML file (default: its default policy)")
    for option in ("reasoning_parser", "tool_call_parser"):
        flag = f"--{option.replace('_', '-')}"
        parser.add_argument(flag, choices=known_parsers(option), help="the same as for weir serve")


def chosen_settings(options: argparse.Namespace, config: str | None, hooks: Iterable[str]) -> ServeSettings:
    """A server's settings with these options. Raises `ValueError` if a server would not start with them."""
    arguments = ["--engine", "echo"]
    for name, value in (
        ("config", config),
        ("reasoning-parser", options.reasoning_parser),
        ("tool-call-parser", options.tool_call_parser),
    ):
        if value is not None:
            arguments += [f"--{name}", value]
    try:
        return load_settings([*arguments, *(part for hook in hooks for part in ("--hook", hook))])
    except SystemExit as error:  # its status is 1, which means here that a result has changed
        raise ValueError(str(error).removeprefix("weir serve: ")) from None


def load_named(specs: Iterable[HookSpec]) -> Iterator[LoadedHook]:
    """The loaded hooks, named as configured or by their classes. The second of one name is `Name 2`. Import
    paths are not used as names: they depend on the folder. Raises `HookLoadError`."""
    names: Counter[str] = Counter()
    for spec in specs:
        hook = load_hook(spec)
        name = spec.name or type(hook.call).__name__
        names[name] += 1
        yield replace(hook, name=name if names[name] == 1 else f"{name} {names[name]}")


def check_scores(hooks: Iterable[LoadedHook], recording: Recording, name: str) -> None:
    """Raise `ValueError` for a recorded answer without the probe's scores that one of the hooks reads
    (contract 1.10). `name`: the recording's, for the message."""
    scores = (timed.delta.prompt_scores for timed in recording.deltas)
    probes = next((one.probes for one in scores if one is not None), ())
    for hook in hooks:
        if hook.needs_probe is None or not recording.deltas:
            continue
        if not probes:
            raise ValueError(
                f"{name}: the hook {hook.name} reads a probe's scores, and this answer has none. Recordings"
                " of weir serve --engine local --probe FILE --record FOLDER have them"
            )
        try:
            hook.needs_probe.choose(probes)
        except ValueError as error:
            raise ValueError(
                f"{name}: the hook {hook.name} cannot read the recorded scores: {error}"
            ) from error
