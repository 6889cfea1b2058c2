"""`weir serve --hook no_zebra`: an answer never says zebra."""

import re

from hooks import Chunk, Verdict, redact


class NoZebra:
    """Finds the word zebra."""

    max_hold = len("zebr")

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        spans = [(*found.span(), "horse") for found in re.finditer("zebra", text)]
        held = 0 if chunk.is_final else max(n for n in range(5) if text.endswith("zebra"[:n]))
        return redact(spans, hold=held)
