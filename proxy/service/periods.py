"""The periods in which requests and tokens are counted: minutes, days and calendar months, all of UTC."""

from datetime import UTC, datetime
from enum import StrEnum

DAY = 24 * 60
LONGEST_MONTH = 31 * DAY


class Period(StrEnum):
    """Times are minutes, counted from 1970. The value is the end of a limit's name."""

    MINUTE = "minute"
    DAY = "day"
    MONTH = "month"

    def start(self, minute: int) -> int:
        """The first minute of the period with this minute."""
        if self is Period.MINUTE:
            return minute
        day = minute - minute % DAY
        return day if self is Period.DAY else day - DAY * (datetime.fromtimestamp(60 * day, UTC).day - 1)

    def end(self, start: int) -> int:
        """The minute after the period that begins with this one."""
        match self:
            case Period.MINUTE:
                return start + 1
            case Period.DAY:
                return start + DAY
        return self.start(start + LONGEST_MONTH)

    @property
    def in_words(self) -> str:
        return "a minute" if self is Period.MINUTE else f"a {self} of UTC"
