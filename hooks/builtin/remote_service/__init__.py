"""The service that the guard `remote` asks: its APIs, one in each file, and the connections to it."""
