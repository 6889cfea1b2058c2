"""Have the model put it in other words: `weir serve --hook examples/say_otherwise.py:SayOtherwise`."""

import re

from hooks import Chunk, Verdict, emit, hold, rewind

PHRASE = "computer"


class SayOtherwise:
    may_rewind = True

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        if chunk.aborted:
            return emit(text)
        if found := re.search(PHRASE, text, re.IGNORECASE):
            return rewind("say_otherwise", after=found.start())
        if chunk.is_final:
            return emit(text)
        # The longest end of the text that could still become the phrase waits.
        return hold(max(n for n in range(len(PHRASE)) if text[len(text) - n :].lower() == PHRASE[:n]))
