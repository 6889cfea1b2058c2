"""The `weir` command: one module for each subcommand, and all that they print."""

import sys


def main() -> None:
    """Run the command. Its imports take a second, in which Ctrl-C ends it as later: with 130."""
    try:
        from proxy.cli import cli
    except KeyboardInterrupt:
        print("weir: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    cli.main()
