"""The `weir` command: one module for each subcommand, and all that they print."""
