"""`python -m proxy` runs the `weir` command."""

from proxy.commands import main

main()
