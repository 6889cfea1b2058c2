"""The body of a request: what the shapes of all endpoints have in common."""

import re

from pydantic import BaseModel

_PLACE = re.compile(r"(?P<name>messages|tools)\[(?P<index>\d+)\]")


class RequestBody(BaseModel):
    """The JSON of a request, as its endpoint reads it."""

    model: str | None = None

    def place_of(self, place: str, field: str | None) -> str | None:
        """The place of a prompt's text as the caller's JSON has it. It holds none of the caller's words.

        `place`: `PromptText.place`. `field`: that of the prompt, for a place that cannot be said.
        """
        if (found := _PLACE.match(place)) is None:
            return field
        index = int(found["index"])
        try:
            return self.tool_place(index) if found["name"] == "tools" else self.message_place(index)
        except LookupError:  # the JSON has none, or a hook has added it
            return field

    def tool_place(self, index: int) -> str:
        """The place of a tool of the request that was made of the JSON. Raises `LookupError`."""
        raise LookupError(index)

    def message_place(self, index: int) -> str:
        """The place of a message of the request that was made of the JSON. Raises `LookupError`."""
        raise LookupError(index)
