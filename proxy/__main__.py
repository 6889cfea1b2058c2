"""`python -m proxy` is the `weir` command."""

from proxy.commands.cli import main

main()
