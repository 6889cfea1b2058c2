"""Which sequences run in the next step, and which blocks of the cache they use. Pure Python: no torch."""
