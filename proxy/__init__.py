"""The service: HTTP in front, an engine behind, guardrail hooks between. The only place where all meet."""

__version__ = "0.1.0"
