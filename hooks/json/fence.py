"""The code fence that many models write around an answer in JSON: lines of three backticks."""

import re

MAX_OPENING = 24
"""Most characters of the fence's first line. A longer one is text."""

_OPENING = re.compile(r"\s*(```[ \t]*(?:json)?[ \t]*\r?\n)", re.IGNORECASE)
_OPENS = re.compile(r"\s*(`{1,2}|```[ \t]*(?:j|js|jso|json)?[ \t]*\r?)", re.IGNORECASE)
MARK = "```"


def opening(text: str) -> tuple[int, int] | None:
    """The place of a fence's first line, where `text` begins with one after blanks."""
    found = _OPENING.match(text)
    return found.span(1) if found and len(found[1]) <= MAX_OPENING else None


def num_opening(text: str) -> int:
    """The characters at the end of `text` that may still become a fence's first line, if there is nothing but
    blanks before them."""
    found = _OPENS.fullmatch(text)
    return len(found[1]) if found and len(found[1]) < MAX_OPENING else 0
