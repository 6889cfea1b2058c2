"""The service: HTTP in front, an engine behind, guardrail hooks between. The only place where all meet."""
