"""Tokens of texts that are not to be trusted: in them, the name of a special token is plain text.

A guard model reads such texts between special tokens of its prompt. A text that could make one would close
its own turn and open another.
"""

import json
from itertools import pairwise

from tokenizers import Tokenizer as FastTokenizer

from engine.protocol import TextTokens


class PlainText:
    """A tokenizer without its added tokens. It keeps no state between calls."""

    def __init__(self, tokenizer: FastTokenizer) -> None:
        self._added = frozenset(tokenizer.get_added_tokens_decoder())
        # Without the post-processor, offsets are whole: it would cut white space off them.
        parts = json.loads(tokenizer.to_str()) | {"added_tokens": [], "post_processor": None}
        self._fast = FastTokenizer.from_str(json.dumps(parts))

    def tokens(self, text: str) -> TextTokens:
        """Half a surrogate pair is read as `?`. Raises `ValueError` if a token is an added one: some
        vocabularies have added tokens among the learned ones."""
        if not text.isascii():
            text = text.encode(errors="replace").decode()
        encoding = self._fast.encode(text, add_special_tokens=False)
        ids, offsets = encoding.ids, encoding.offsets
        if not self._added.isdisjoint(ids):
            raise ValueError("the tokenizer reads a special token in plain text")
        # A character of several tokens has the same offsets in each of them: it is whole at the last one.
        ends = [min(end, start) for (_, end), (start, _) in pairwise([*offsets, (len(text), 0)])]
        return TextTokens(ids, ends, [word or 0 for word in encoding.word_ids])
