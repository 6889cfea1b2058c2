"""Any OpenAI-compatible server as an engine."""
