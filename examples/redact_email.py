"""Black out e-mail addresses: `weir serve --hook examples/redact_email.py:RedactEmail`."""

import re

from hooks import Chunk, Verdict, redact

ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+", re.ASCII)
UNFINISHED = re.compile(r"[\w.+@-]*\Z", re.ASCII)


class RedactEmail:
    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        # An address is one run of its characters; a run at the end may still grow, so it waits.
        end = len(text) if chunk.is_final else UNFINISHED.search(text).start()
        spans = [(m.start(), m.end(), "[e-mail]") for m in ADDRESS.finditer(text, 0, end)]
        return redact(spans, hold=len(text) - end)
