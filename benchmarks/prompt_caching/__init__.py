"""What becomes of an agent's prompt cache when Weir is between it and its model."""
