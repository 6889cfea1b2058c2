"""vLLM as an engine in Weir's own process: its model, scheduler and cache; Weir's tokens, texts and stops."""
