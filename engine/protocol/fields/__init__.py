"""The fields of a request: their names, and what an engine does with each."""
