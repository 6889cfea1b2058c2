"""A dialogue with a server in a terminal: `weir chat`."""
