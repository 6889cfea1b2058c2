"""Rewrite what the model says: `weir serve --hook examples/upper_case.py:UpperCase`."""

from hooks import Chunk, Verdict, emit


class UpperCase:
    """Every answer in capitals. Rewritten text takes its token ids and logprobs with it (contract 3.6)."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending.upper())
