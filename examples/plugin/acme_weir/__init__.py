"""Parts for Weir: an engine, a guard, a parser and a command. `pyproject.toml` gives them names."""
