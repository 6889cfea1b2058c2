"""Turns one sequence's token ids into text as they come, and finds stop strings in it.

A token comes out with the text that it completes (contract 2.4). A token that ends inside a character, and a
special token that is skipped, have no text. They wait for the next token with text. Stop strings are found
here, before anything else sees the text (contract 2.7). A token waits only while its text could still become
a stop string.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenizers import Tokenizer as FastTokenizer

from engine.protocol import Token
from engine.text.alignment import cut_tokens
from engine.text.text_search import find_stop, num_held

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""The end of a decoder's text when bytes of the last character are missing."""
NUM_PRIMING_TOKENS = 16
"""The prompt's last tokens that are decoded with the output: the first word's space can depend on them."""
MAX_UNDECIDED_TOKENS = 32
"""No character has so many tokens. Bytes that do not make a character within them become U+FFFD."""


class SpecialTokens(NamedTuple):
    """The treatment of special tokens in a text. The names and defaults are vLLM's."""

    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True


class WholeTexts(dict[int, str]):
    """The texts of tokens that complete the same text after whichever whole characters. "" stands for any
    other token. Made when first asked for; all outputs of a tokenizer share them.

    Only of byte-level tokenizers is it known which tokens do: their decoder joins the tokens' bytes.
    """

    def __init__(self, fast: FastTokenizer) -> None:
        decoder = fast.decoder.__getstate__() if fast.decoder is not None else b"{}"
        self._fast = fast
        self._is_byte_level = json.loads(decoder).get("type") == "ByteLevel"
        self._added = frozenset(fast.get_added_tokens_decoder())

    def __missing__(self, token_id: int) -> str:
        text: str = ""
        if self._is_byte_level and token_id not in self._added:
            text = self._fast.decode([token_id], skip_special_tokens=False)
        self[token_id] = text = "" if INCOMPLETE in text else text
        return text


SKIPPED = SpecialTokens()
WRITTEN = SpecialTokens(skip_special_tokens=False, spaces_between_special_tokens=False)
"""As a text that is tokenized names them."""


class Detokenizer:
    """`decode` each token, then `flush`. Both return the tokens that are decided, with their texts."""

    def __init__(
        self,
        fast: FastTokenizer,
        prompt_token_ids: Sequence[int] = (),
        stop: Sequence[str] = (),
        special: SpecialTokens = SKIPPED,
        whole_texts: WholeTexts | None = None,
    ) -> None:
        """`prompt_token_ids`: the output's text can depend on the prompt's, such as a first word's space.
        `whole_texts`: those of `fast`, to be faster."""
        self.stopped: str | None = None
        """The stop string that was found. No token may be decoded after it."""
        self._fast = fast
        self._texts = TextStream(fast, prompt_token_ids, special, whole_texts)
        self._stop, self._special, self._whole_texts = stop, special, whole_texts
        self._pending: list[Token] = []
        self._text = ""
        """The text that the pending tokens complete."""
        self._num_returned = 0
        """How many pending tokens, from the first, were returned already, before a rewind."""

    def rewound(self, token_ids: Sequence[int], num_output_tokens: int) -> "Detokenizer":
        """A detokenizer that continues after `token_ids`, which are the prompt and the kept output. It
        returns none of these tokens again, but finds stop strings that begin in their text."""
        num_read = MAX_UNDECIDED_TOKENS + max(map(len, self._stop), default=0)
        begin = len(token_ids) - min(num_output_tokens, num_read)
        prompt = token_ids[:begin]
        rewound = Detokenizer(self._fast, prompt, self._stop, self._special, self._whole_texts)
        for token_id in token_ids[begin:]:
            rewound.decode(Token(token_id, ""), may_stop=False)
        rewound._num_returned = len(rewound._pending)
        return rewound

    def decode(self, token: Token, *, may_stop: bool = True) -> tuple[Token, ...]:
        """Take the next token, which has no text yet. `may_stop`: whether a stop string may end here."""
        assert token.id is not None
        text = self._texts.step(token.id)
        token = Token._make((token.id, text, *token[2:]))  # `_replace` takes twice as long
        if text and not self._stop and not self._pending:
            return (token,)
        self._pending.append(token)
        if not text:
            return ()
        num_seen = len(self._text)
        self._text += text
        if may_stop and (found := find_stop(self._text, self._stop, num_seen)):
            begin, self.stopped = found
            kept = cut_tokens(self._release(len(self._text)), begin)
            # A token that is cut has no id. Its text is not its own any more, so it has no bytes either.
            return self._new(tuple(t if t.id is not None else t._replace(raw=b"") for t in kept))
        return self._new(self._release(len(self._text) - num_held(self._text, self._stop)))

    def flush(self) -> tuple[Token, ...]:
        """The output has ended: return the rest. Bytes of an incomplete character never become text."""
        if self._pending and (text := self._texts.flush()):
            self._pending[-1] = self._pending[-1]._replace(text=text)
        tokens, self._pending, self._text = tuple(self._pending), [], ""
        return self._new(tokens)

    def _new(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        num_returned = min(self._num_returned, len(tokens))
        self._num_returned -= num_returned
        return tokens[num_returned:]

    def _release(self, num_characters: int) -> tuple[Token, ...]:
        # Up to the last token whose text lies within the characters. Tokens without text after it stay.
        count = end = position = 0
        for i, token in enumerate(self._pending, start=1):
            position += len(token.text)
            if position > num_characters:
                break
            if token.text:
                count, end = i, position
        released, self._pending = tuple(self._pending[:count]), self._pending[count:]
        self._text = self._text[end:]
        return released


class TextStream:
    """The text that each id of a stream completes.

    A token's text can depend on the token before it. So the stream decodes the undecided ids together with
    those decided last, and returns the new text. Unlike `tokenizers.decoders.DecodeStream`, it loses no whole
    character at the end, and it accepts bytes that do not fit together.
    """

    def __init__(
        self,
        fast: FastTokenizer,
        prompt_token_ids: Sequence[int] = (),
        special: SpecialTokens = SKIPPED,
        whole_texts: WholeTexts | None = None,
    ) -> None:
        """`whole_texts`: those of `fast`, to be faster."""
        self._fast = fast
        self._whole_texts = whole_texts
        self._skips, has_spaces = special
        self._unspaced: Mapping[int, str] = {}
        """The texts of added tokens, if no space may be between two of them."""
        if not self._skips and not has_spaces:
            self._unspaced = {i: token.content for i, token in fast.get_added_tokens_decoder().items()}
        self._is_behind_added = False
        self._window = list(prompt_token_ids[-NUM_PRIMING_TOKENS:])
        self._known_text = self._decode(self._window).rstrip(INCOMPLETE)
        # The prompt may end inside a character. The first ids then complete it.
        self._num_decided = len(self._window)
        while self._num_decided and self._decode(self._window[: self._num_decided]).endswith(INCOMPLETE):
            self._num_decided -= 1

    def step(self, token_id: int) -> str:
        """The whole characters that the id completes. An id that also begins the next character completes
        none yet: it goes with that character (contract 3.6)."""
        is_all_decided = len(self._window) == self._num_decided
        if self._whole_texts is not None and is_all_decided and (text := self._whole_texts[token_id]):
            self._window, self._num_decided, self._known_text = [token_id], 1, text
            self._is_behind_added = False
            return text
        new = self._step(token_id)
        if self._unspaced:
            added = self._unspaced.get(token_id)
            if added is not None and self._is_behind_added:
                new = added
            self._is_behind_added = added is not None
        return new

    def _step(self, token_id: int) -> str:
        self._window.append(token_id)
        text = self._decode(self._window)
        if not text.startswith(self._known_text) and not self._known_text.startswith(text.rstrip(INCOMPLETE)):
            # A run of byte tokens is decoded together. A byte that does not fit changes its earlier text.
            self._window = self._window[self._num_decided :]
            self._num_decided, self._known_text = 0, ""
            text = self._decode(self._window)
        if text.endswith(INCOMPLETE) and len(self._window) - self._num_decided <= MAX_UNDECIDED_TOKENS:
            return ""
        return self._decide(text)

    def flush(self) -> str:
        """The stream has ended: whole characters that waited for a character that was begun."""
        return self._decide(self._decode(self._window).rstrip(INCOMPLETE))

    def _decode(self, token_ids: list[int]) -> str:
        text: str = self._fast.decode(token_ids, skip_special_tokens=self._skips)
        return text

    def _decide(self, text: str) -> str:
        new = text[len(self._known_text) :]
        if new:
            self._window = self._window[self._num_decided :]
            self._num_decided = len(self._window)
            self._known_text = self._decode(self._window)
        return new
