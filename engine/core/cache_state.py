"""How much of one sequence the key-value cache holds, and in which blocks."""

from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class CacheState:
    """The `Scheduler` and its `BlockManager` fill it; the model reads it."""

    num_computed_tokens: int = 0
    """Leading tokens of the sequence whose keys and values are in the cache. Preemption sets it back to 0."""
    block_table: list[int] = field(default_factory=list)
    """The blocks that hold the computed tokens, in order."""
    block_hashes: list[bytes] = field(default_factory=list)
    """Hashes of the sequence's first full blocks (`engine.core.block_hash`), as far as they were needed."""
    has_run: bool = False
    """Whether the sequence ever had blocks."""
