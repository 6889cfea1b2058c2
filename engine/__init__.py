"""Engines: whatever turns a `GenerationRequest` into a stream of `Delta`s.

`engine.protocol` is the seam that the rest of Weir sees. Importing this package, or that module, loads no
torch; the in-process engine (`engine.core.engine_core` and the modules beside it) loads it with
`engine.backends.local`.
This package knows neither HTTP nor guardrails.
"""
