"""The three answers to a question about a call: yes, no, and unknown.

Programs read an unusual path or address in different ways, so a policy often cannot know what a call does. A
test then answers `UNKNOWN`, and never guesses. `Rule` makes a decision of it, and nothing else does.
"""

from collections.abc import Iterable
from enum import IntEnum


class Truth(IntEnum):
    NO = 0
    UNKNOWN = 1
    YES = 2

    def __bool__(self) -> bool:
        raise TypeError("an answer that may be unknown is neither true nor false")


def true_if(is_so: bool) -> Truth:
    return Truth.YES if is_so else Truth.NO


def all_of(answers: Iterable[Truth]) -> Truth:
    """Whether all answers are yes. After a no, the rest is not asked for."""
    least = Truth.YES
    for answer in answers:
        least = min(least, answer)
        if least is Truth.NO:
            break
    return least


def any_of(answers: Iterable[Truth]) -> Truth:
    """Whether at least one answer is yes. After a yes, the rest is not asked for."""
    most = Truth.NO
    for answer in answers:
        most = max(most, answer)
        if most is Truth.YES:
            break
    return most


def agreed(answers: Iterable[Truth]) -> Truth:
    """The answer that all readings of a text give; unknown if they differ, or if there is none."""
    found = set(answers)
    return found.pop() if len(found) == 1 else Truth.UNKNOWN
