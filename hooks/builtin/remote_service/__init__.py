"""The service that the guard `remote` asks: its two APIs and the connections to it."""
