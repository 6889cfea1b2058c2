"""The API's shapes: JSON in, `GenerationRequest`; released `Delta`s in, JSON out. Knows no HTTP."""
