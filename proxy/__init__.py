"""The service: HTTP in front, an engine behind, guardrail hooks in between. Only here all three meet."""

__version__ = "0.2.0"
