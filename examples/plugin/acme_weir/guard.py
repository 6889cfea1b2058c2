"""`weir serve --hook no_zebra`: an answer never says zebra."""

from hooks import Chunk, Verdict, redact


class NoZebra:
    """Finds the word zebra."""

    max_hold = len("zebr")

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        start = text.find("zebra")
        spans = [(start, start + len("zebra"), "horse")] if start >= 0 else []
        held = 0 if chunk.is_final else max(n for n in range(5) if text.endswith("zebra"[:n]))
        return redact(spans, hold=held)
