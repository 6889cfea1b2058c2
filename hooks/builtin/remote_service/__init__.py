"""The service that the guard `remote` asks: its APIs, and the connections to it."""
