"""`python -m proxy` is the `weir` command."""

from proxy.cli import main

main()
