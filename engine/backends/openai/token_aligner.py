"""Tokens and text that an upstream streams side by side, brought together. No I/O.

An upstream says which tokens it drew and what text came of them, but not which text came of which token. It
leaves special tokens out of the text, shows the parts of a split character as U+FFFD, and, while it looks for
stop strings, lets the text lag behind the tokens. A token must not pass a guard on another token's text
(contract 2.4, 3.6), so a token is released with its own text only:

1. A token whose string is what the text goes on with has that text.
2. A token whose string the text contradicts has none (a special token), and goes with the text that follows.
3. Tokens with a U+FFFD in them share the text up to the next token's.
4. Where that leaves text over, all that waits moves as one piece (contract 3.11) if it may be that text at
   all; but if the text may lag, it waits, for more or for the end, since the piece could hold tokens whose
   text is still to come.
5. Text that passed without its tokens may get them later, and they would then stand beside another text. So
   once some text was passed bare, or was contradicted by its tokens, none of the output's are told any more.
"""

import re
from collections.abc import Sequence
from itertools import islice, takewhile

from engine.protocol import Token
from engine.text.alignment import align_tokens, cut_tokens

Piece = tuple[str, tuple[Token, ...]]
"""Text, and the tokens whose texts joined it is; or no tokens, where none are told."""


def _may_be(tokens: Sequence[Token], text: str) -> bool:
    """Whether the text can be the tokens': if all their strings are known, they differ in spaces at most."""
    strings = "".join(token.text for token in tokens)
    return "\ufffd" in strings or _SPACES.sub("", strings) == _SPACES.sub("", text)


_SPACES = re.compile(r"[\s\u2581]+")  # SentencePiece writes a space as U+2581
_PARTS = re.compile("\ufffd+")  # of characters; those that can be split are not ASCII


class TokenAligner:
    """One output's tokens and text. `stop`: its stop strings; with any, text may lag behind tokens."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = stop
        self._max_waiting = 32 + max(map(len, stop), default=0)
        self._tokens: list[Token] = []
        self._text = ""
        self._muted = False
        self._is_bare = False
        """Some text was passed without tokens."""

    @property
    def waits(self) -> bool:
        """Whether there is text that has not been released."""
        return bool(self._text)

    def feed(self, tokens: Sequence[Token], text: str, *, more: bool = False) -> Piece:
        """Take in what came, and release what is settled. Of a token, `text` is read as its own string.

        `more`: more text is to come for these tokens.
        """
        self._text += text
        if tokens and self._is_bare:
            return self.mute(), ()
        if not self._muted:
            self._tokens += tokens
        if not self._tokens:
            self._is_bare = self._is_bare or bool(text)
            return self._release(0, len(self._text), ())
        fitted, length = self._fit()
        if length < len(self._text):
            if not more and not self._stop:
                if not _may_be(self._tokens, self._text):
                    return self.mute(), ()
                one_piece = align_tokens(self._tokens, self._text)
                return self._release(len(self._tokens), len(self._text), one_piece)
            if len(self._tokens) - len(fitted) > self._max_waiting:
                return self.mute(), ()
        return self._release(len(fitted), length, fitted)

    def mute(self) -> str:
        """Tell no tokens any more, nor those that wait: the text is not theirs. Gives what text waits."""
        self._muted = True
        text, self._text = self._text, ""
        self._tokens.clear()
        return text

    def flush(self) -> Piece:
        """At the output's end: all that is left, without what belongs to a stop string."""
        fitted, length = self._fit()
        rest, text = self._tokens[len(fitted) :], self._text[length:]
        strings = "".join(token.text for token in rest)
        if strings.startswith(text) and any(strings.startswith(stop, len(text)) for stop in self._stop):
            rest = cut_tokens(rest, len(text))
        pieces = (*fitted, *align_tokens(rest, text))
        return self._release(len(self._tokens), len(self._text), align_tokens(pieces, self._text))

    def _fit(self) -> tuple[tuple[Token, ...], int]:
        """Of the tokens that wait, those whose text has come, fitted to it, and that text's length."""
        tokens, text = self._tokens, self._text
        fitted: list[Token] = []
        settled = (0, 0)
        pos = 0
        while len(fitted) < len(tokens):
            token = tokens[len(fitted)]
            ahead = text[pos : pos + len(token.text)]
            if ahead == token.text:
                fitted.append(token)
                pos += len(token.text)
            elif token.text.startswith(ahead):  # the rest of it is still to come
                break
            elif "\ufffd" in token.text:
                run, end = self._run(len(fitted), pos)
                if end is None:
                    break
                fitted += align_tokens([token._replace(text="") for token in run], text[pos:end])
                pos = end
            else:
                fitted.append(token._replace(text=""))
            if pos > settled[1]:
                settled = (len(fitted), pos)
        return tuple(fitted[: settled[0]]), settled[1]

    def _run(self, first: int, pos: int) -> tuple[list[Token], int | None]:
        """The tokens from `first` whose strings are not known, and where the next token's text begins."""
        run = list(takewhile(lambda t: "\ufffd" in t.text or not t.text, islice(self._tokens, first, None)))
        last = first + len(run)
        if last == len(self._tokens):
            return run, None if self._stop else len(self._text)
        strings = re.escape("".join(token.text for token in run))
        unknown = _PARTS.sub(lambda parts: rf"[^\x00-\x7f]{{1,{len(parts[0])}}}", strings)
        found = re.compile(f"({unknown}){re.escape(self._tokens[last].text)}").match(self._text, pos)
        return run, found.end(1) if found else None

    def _release(self, num_tokens: int, length: int, tokens: tuple[Token, ...]) -> Piece:
        text, self._text = self._text[:length], self._text[length:]
        del self._tokens[:num_tokens]
        return text, tokens
