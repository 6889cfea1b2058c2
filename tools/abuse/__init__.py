"""Attacks on a running server, with a well-behaved client beside them: `make abuse` and `make soak`."""
