"""Engines: they turn a `GenerationRequest` into a stream of `Delta`s. They know neither HTTP nor guardrails.

`engine.protocol` is the seam to the rest of Weir. An import of this package or of `engine.protocol` loads no
torch; `engine.local.engine`, the in-process engine, loads it. That engine is made of `engine.core` (which
sequences run), `engine.execution` (the model), `engine.sampling` (the next token) and `engine.text` (tokens
to text).
"""
