"""The models that the engine runs: Weir's own decoder for the common family, transformers for the rest."""
