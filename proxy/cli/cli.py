"""The `weir` command: the subcommands and their help."""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial

from proxy import __version__
from proxy.cli.chat import add_chat_arguments
from proxy.cli.config import add_config_arguments
from proxy.cli.eval_guard import add_eval_guard_arguments
from proxy.cli.hooks import add_hooks_arguments
from proxy.cli.probe import add_probe_arguments
from proxy.cli.replay import add_replay_arguments
from proxy.cli.serve import serve
from proxy.cli.shadow import add_shadow_arguments
from proxy.cli.watermark import add_watermark_arguments
from proxy.settings.parser import CommandParser
from proxy.settings.serve import load_settings

DESCRIPTION = """\
Weir runs a language model behind guardrail hooks, on an OpenAI-compatible API.

  weir serve                                  the small model that ships, on 127.0.0.1:8000
  weir serve --model Qwen/Qwen3-8B --hook acme.guards.NoSecrets
  weir serve --engine openai --upstream http://127.0.0.1:8001/v1 --hook acme.guards.NoSecrets
  weir chat                                   talk to it
  weir config check weir.yaml                 is anything wrong with these models, policies and keys?
  weir hooks list                             which guards ship, and their arguments
  weir hooks check acme.guards.NoSecrets      is it right at every chunk boundary?
  weir hooks fuzz acme.guards.NoSecrets       is it right on texts made to get around it?
  weir replay FILE --hook acme.guards.NoSecrets
  weir eval-guard FILE --hook stream_guard    what does it find, how late, and what does it find wrongly?
  weir probe train EXCHANGES --out harm.safetensors
  weir shadow report                          what would hooks in shadow mode have withheld?
  weir watermark detect FILE --key KEY        did a model with this watermark write it?
"""

COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], str]] = {
    "chat": (add_chat_arguments, "talk to a server, and watch the stream as it comes"),
    "config": (add_config_arguments, "check a settings file, explain what a key gets, or make a key"),
    "hooks": (add_hooks_arguments, "list, check or fuzz hooks: weir hooks check path/to/file.py:Class"),
    "probe": (add_probe_arguments, "train a probe of a model, calibrate it, and report what it finds"),
    "replay": (add_replay_arguments, "show what hooks release of recorded answers"),
    "eval-guard": (add_eval_guard_arguments, "measure what guards find in labelled exchanges, and how late"),
    "shadow": (add_shadow_arguments, "report what hooks in shadow mode would have done"),
    "watermark": (add_watermark_arguments, "look for the watermark of a key in a text"),
}
"""Each adds its arguments to a parser, and as `run` the function to call with the parsed options."""

REMOVED = {"bench": "put load on a server with guidellm or `vllm bench serve` instead: docs/benchmarks.md"}
"""Commands of earlier versions, with what to use instead."""


def main(arguments: list[str] | None = None) -> None:
    """Run a subcommand. Exits with 0, with 1 or 2 and a reason on standard error, or with 130 at Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["serve"]:  # its options are read by pydantic-settings
        read = partial(load_settings, arguments[1:])
        serve(read(), read)
        return
    if instead := REMOVED.get("".join(arguments[:1])):
        print(f"weir: error: the command {arguments[0]!r} is removed; {instead}", file=sys.stderr)
        raise SystemExit(2)
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("weir: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="weir", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        title="commands", required=True, metavar=f"{{{','.join(['serve', *COMMANDS])}}}"
    )
    commands.add_parser("serve", help="serve a model (see weir serve --help)")
    for name, (add_arguments, help_text) in COMMANDS.items():
        add_arguments(commands.add_parser(name, help=help_text))
    return parser
