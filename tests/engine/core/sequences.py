"""Sequences for tests that never read their text."""

from engine.scheduling.sequence import Sequence, SequenceGroup
from tests.engine.conftest import completion


def sequences(number: int) -> list[Sequence]:
    """The outputs of one request."""
    group = SequenceGroup(completion((5,), n=number))
    return [group.add((5,), max_tokens=1, detokenizer=None) for _ in range(number)]  # type: ignore[arg-type]
