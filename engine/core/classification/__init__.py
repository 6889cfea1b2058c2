"""Models that classify every token of texts that grow."""
