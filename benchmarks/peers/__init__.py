"""The same guarded answers through Weir, LiteLLM's proxy and NeMo Guardrails' server."""
