"""`python -m proxy` runs the `weir` command."""

from proxy.commands.cli import main

main()
