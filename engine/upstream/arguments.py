"""Reads the arguments of a call as an upstream writes them: the text of an object, its text once more as a
string, or null."""

from engine.parsers.json_reader import Nesting
from engine.protocol.call_arguments import object_text


class Arguments:
    """The arguments of one call, as far as they have come.

    They leave at once, unless they may be an object in a string, or none: those wait until they are whole.
    """

    def __init__(self) -> None:
        self.is_held = False
        """Whether some of them wait."""
        self._has_left = False
        self._held: list[str] = []
        self._beginning = ""
        """The first characters, without blanks."""
        self._nesting = Nesting(skips_other=True)

    @property
    def is_whole(self) -> bool:
        """Whether they are a whole object, list or string, or null."""
        return self._nesting.is_whole or self._beginning == "null"

    @property
    def is_open(self) -> bool:
        """Whether more must come: those that came are not whole."""
        return self._nesting.is_open

    def feed(self, text: str) -> str:
        """Add their next part. Returns the text that may leave."""
        if not text:
            return ""
        if len(self._beginning) <= len("null"):
            self._beginning += "".join(text.split())[: len("null ")]
        self._nesting.end(text, 0)
        if self._has_left:
            return text
        self._held.append(text)
        may_be_none = "null".startswith(self._beginning) or self._beginning.startswith('"')
        self.is_held = may_be_none and not self.is_whole
        return "" if self.is_held else self.end()

    def end(self) -> str:
        """No more come. Returns the text that waited."""
        self.is_held, self._has_left = False, True
        text, self._held = "".join(self._held), []
        return object_text(text)
