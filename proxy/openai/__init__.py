"""The API's shapes: JSON becomes a `GenerationRequest`, and released `Delta`s become JSON. Knows no HTTP."""
