"""The rules of the guard `pii`: one module for each kind of personal data."""
