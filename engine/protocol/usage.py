"""The tokens of a request, as an engine counts them."""

from dataclasses import dataclass


@dataclass(slots=True)
class Usage:
    """Token counts of a whole request, so far. A `Usage` never changes once it is made, as a `Delta`."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    """Prompt tokens that were not computed, because an earlier prompt or output began with them."""
    reasoning_tokens: int = 0
    cache_written_tokens: int = 0
    """Prompt tokens that an upstream wrote to its cache, where it says so."""
    cache_written_1h_tokens: int = 0
    """Those of them that the cache keeps for an hour."""
