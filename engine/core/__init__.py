"""The in-process engine's step: scheduling, sequences, blocks of the cache, and what is measured."""
