"""Turns one sequence's token ids into text as they come, and finds its stop strings.

A token comes out with the text that it completes (contract 2.4): one that ends inside a character, or is
special, has no text, and waits for the next that has some. Stop strings are found on this text before
anything else sees it (contract 2.7); the tokens that touch what could still become one wait too, no others.
"""

from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer as FastTokenizer

from engine.protocol import Token
from engine.text.text_search import find_stop, num_held

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""What a decoder ends in when the last character lacks bytes."""
NUM_PRIMING_TOKENS = 16
MAX_UNDECIDED_TOKENS = 32
"""No character is spread over so many; bytes that have not become one by then are taken as they are."""


class Detokenizer:
    """`decode` each token, then `flush`; both give the tokens that are decided, with their texts."""

    def __init__(
        self, fast: FastTokenizer, prompt_token_ids: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        """The text is what follows the prompt's: whether a word begins with a space can depend on that."""
        self.stopped: str | None = None
        """The stop string that was found. Nothing may be decoded after it."""
        self._fast = fast
        self._texts = TextStream(fast, prompt_token_ids)
        self._stop = stop
        self._pending: list[Token] = []
        self._text = ""
        """What the pending tokens complete."""
        self._num_given = 0
        """Pending tokens, the first, that another gave already."""

    def rewound(self, token_ids: Sequence[int], num_output_tokens: int) -> "Detokenizer":
        """One that goes on behind `token_ids`, prompt and output. It gives none of these again, but finds
        stop strings that began in them."""
        num_read = MAX_UNDECIDED_TOKENS + max(map(len, self._stop), default=0)
        begin = len(token_ids) - min(num_output_tokens, num_read)
        rewound = Detokenizer(self._fast, token_ids[:begin], self._stop)
        for token_id in token_ids[begin:]:
            rewound.decode(Token(token_id, ""), may_stop=False)
        rewound._num_given = len(rewound._pending)
        return rewound

    def decode(self, token: Token, *, may_stop: bool = True) -> tuple[Token, ...]:
        """Take the next token, its text not known yet. `may_stop`: whether a stop string may end here."""
        token_id, _, raw, logprob, top, _ = token
        assert token_id is not None
        text = self._texts.step(token_id)
        token = Token(token_id, text, raw, logprob, top)
        if text and not self._stop and not self._pending:
            return (token,)
        self._pending.append(token)
        if not text:
            return ()
        num_seen = len(self._text)
        self._text += text
        if may_stop and (found := find_stop(self._text, self._stop, num_seen)):
            begin, self.stopped = found
            return self._new(tuple(_cut(self._release(len(self._text)), begin)))
        return self._new(self._release(len(self._text) - num_held(self._text, self._stop)))

    def flush(self) -> tuple[Token, ...]:
        """No more will come: give what is left. Bytes of an incomplete character never become text."""
        if self._pending and (text := self._texts.flush()):
            self._pending[-1] = self._pending[-1]._replace(text=text)
        tokens, self._pending, self._text = tuple(self._pending), [], ""
        return self._new(tokens)

    def _new(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        num_given = min(self._num_given, len(tokens))
        self._num_given -= num_given
        return tokens[num_given:]

    def _release(self, num_characters: int) -> tuple[Token, ...]:
        # Up to the last token whose text lies wholly within; those without text after it stay.
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

    It decodes the ids that are undecided after those that were decided last, since what a token says can
    depend on the one before, and gives what is new. Unlike `tokenizers.decoders.DecodeStream` it loses no
    whole character at the end, and does not fail where bytes do not fit together.
    """

    def __init__(self, fast: FastTokenizer, prompt_token_ids: Sequence[int] = ()) -> None:
        self._fast = fast
        self._window = list(prompt_token_ids[-NUM_PRIMING_TOKENS:])
        self._given = fast.decode(self._window).rstrip(INCOMPLETE)
        # The prompt may end inside a character, which the first ids then complete.
        self._num_decided = len(self._window)
        while self._num_decided and fast.decode(self._window[: self._num_decided]).endswith(INCOMPLETE):
            self._num_decided -= 1

    def step(self, token_id: int) -> str:
        """The whole characters that the id completes. One that also begins another completes none yet: it
        is the other's as well, and goes with it (contract 3.6)."""
        self._window.append(token_id)
        text: str = self._fast.decode(self._window)
        if not text.startswith(self._given) and not self._given.startswith(text.rstrip(INCOMPLETE)):
            # Byte tokens are decoded in runs, and one that does not fit spoils what its run had given.
            self._window = self._window[self._num_decided :]
            self._num_decided, self._given = 0, ""
            text = self._fast.decode(self._window)
        if text.endswith(INCOMPLETE) and len(self._window) - self._num_decided <= MAX_UNDECIDED_TOKENS:
            return ""
        return self._decide(text)

    def flush(self) -> str:
        """No more ids will come: the whole characters that waited for one that was begun."""
        return self._decide(self._fast.decode(self._window).rstrip(INCOMPLETE))

    def _decide(self, text: str) -> str:
        new = text[len(self._given) :]
        if new:
            self._window = self._window[self._num_decided :]
            self._num_decided = len(self._window)
            self._given = self._fast.decode(self._window)
        return new


def _cut(tokens: Sequence[Token], length: int) -> Iterator[Token]:
    """The tokens that complete the first `length` characters; one that is cut short loses its identity."""
    without_text: list[Token] = []
    for token in tokens:
        if length <= 0:
            return
        without_text.append(token)
        if token.text:
            if len(token.text) > length:
                without_text[-1] = Token(id=None, text=token.text[:length])
            yield from without_text
            without_text = []
            length -= len(token.text)
