"""`python -m proxy` runs the `weir` command."""

from proxy.cli import main

main()
