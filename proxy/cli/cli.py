"""The `weir` command: the subcommands and their help."""

import argparse
import gc
import inspect
import os
import sys
from functools import partial

from engine.protocol.parts import Kind, PartError
from proxy import __version__
from proxy.settings.parser import CommandParser

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
  weir hooks trace "..." --hook pii           what does it do with this text, call by call?
  weir receipts verify FILE                   is each receipt there, and as the server wrote it?
  weir replay FILE --hook acme.guards.NoSecrets
  weir eval-guard FILE --hook stream_guard    what does it find, how late, and what does it find wrongly?
  weir probe train EXCHANGES --out harm.safetensors
  weir scan FILE                              what do guards find in files? With exit status, and SARIF for CI
  weir shadow report                          what would hooks in shadow mode have withheld?
  weir store backup FILE                      copy the keys and decisions of a server that runs
  weir usage                                  who used how many tokens, and for how much money?
  weir watermark detect FILE --key KEY        did a model with this watermark write it?
"""

COMMANDS = Kind(
    "command",
    "weir.commands",
    {
        "chat": "proxy.cli.chat:add_chat_arguments",
        "config": "proxy.cli.config:add_config_arguments",
        "hooks": "proxy.cli.hooks:add_hooks_arguments",
        "probe": "proxy.cli.probes.command:add_probe_arguments",
        "receipts": "proxy.cli.receipts:add_receipts_arguments",
        "replay": "proxy.cli.replays.command:add_replay_arguments",
        "eval-guard": "proxy.cli.evaluation.command:add_eval_guard_arguments",
        "scan": "proxy.cli.scan.command:add_scan_arguments",
        "shadow": "proxy.cli.shadow:add_shadow_arguments",
        "store": "proxy.cli.store:add_store_arguments",
        "usage": "proxy.cli.usage:add_usage_arguments",
        "watermark": "proxy.cli.watermark:add_watermark_arguments",
    },
)
"""Each function adds its arguments to a parser, and as `run` the function to call with the options. Its
docstring is the help of the command."""

REMOVED = {"bench": "put load on a server with guidellm or `vllm bench serve` instead: docs/benchmarks.md"}
"""Commands of earlier versions, with what to use instead."""


def main(arguments: list[str] | None = None) -> None:
    """Run a subcommand. Exits with 0, with 1 or 2 and a reason on standard error, or with 130 at Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["serve"]:  # its options have a parser of their own
        gc.disable()  # imports leave hardly any garbage; `freeze_objects` enables collections again
        try:
            _serve(arguments[1:])
        finally:
            gc.enable()
        return
    if sorted(arguments) == ["--verbose", "--version"]:
        from proxy.cli.about import about

        print(about())
        return
    if instead := REMOVED.get("".join(arguments[:1])):
        print(f"weir: error: the command {arguments[0]!r} is removed; {instead}", file=sys.stderr)
        raise SystemExit(2)
    try:
        options = _parser(arguments[:1]).parse_args(arguments)
        options.run(options)
        sys.stdout.flush()
    except PartError as error:
        print(f"weir: error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    except BrokenPipeError:  # the reader of a pipe has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("weir: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def _serve(arguments: list[str]) -> None:
    # No other command needs the server's code, which takes half a second to import.
    from proxy.cli.serve import serve
    from proxy.settings.serve import load_settings

    read = partial(load_settings, arguments)
    serve(read(), read)


def _parser(asked: list[str]) -> argparse.ArgumentParser:
    """A parser of the command `asked`, whose code alone is loaded, or of all commands."""
    parser = CommandParser(
        prog="weir", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--version",
        action="version",
        version=__version__,
        help="the version; with --verbose also its commit and files",
    )
    names = COMMANDS.names()
    commands = parser.add_subparsers(
        title="commands", required=True, metavar=f"{{{','.join(['serve', *names])}}}"
    )
    commands.add_parser("serve", help="serve a model (see weir serve --help)")
    for name in asked if asked and asked[0] in names else names:
        try:
            add_arguments = COMMANDS.load(name)
        except PartError as error:
            if asked == [name]:
                raise
            commands.add_parser(name, help=str(error))
        else:
            add_arguments(commands.add_parser(name, help=inspect.getdoc(add_arguments)))
    return parser
