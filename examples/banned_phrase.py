"""End an answer before it says a phrase: `weir serve --hook examples/banned_phrase.py:BannedPhrase`."""

import re

from hooks import Chunk, Verdict, emit, hold, terminate

PHRASE = "project bluebird"


class BannedPhrase:
    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        if found := re.search(PHRASE, text, re.IGNORECASE):
            return terminate("banned_phrase", after=found.start())
        if chunk.is_final:
            return emit(text)
        # The longest end of the text that could still become the phrase waits.
        return hold(max(n for n in range(len(PHRASE)) if text[len(text) - n :].lower() == PHRASE[:n]))
