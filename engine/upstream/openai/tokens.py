"""Reads the tokens of an OpenAI-compatible upstream, and matches them with the text of their event. No I/O.

In a chat, `logprobs` is a list of objects; in a completion, it is an object of lists. vLLM puts `token_ids`
next to it.

An upstream sends the tokens that it drew and the text that they make, but not which text belongs to which
token. It leaves special tokens out of the text, shows parts of a split character as U+FFFD, and lets the text
lag behind the tokens while it looks for stop strings. A token must not pass a guard with another token's
text (contract 2.4, 3.6). So a token is released with its own text only:

1. If the text continues with a token's string, the token has this text.
2. If the text contradicts a token's string, the token has no text (a special token). It goes with the text
   that follows.
3. Tokens with U+FFFD in their strings share the text up to the next token's text.
4. If text is left over, all that waits is released together (contract 3.11), provided that the tokens can
   be this text. But if the text may lag, it waits for more text or for the end: among the tokens could be one
   whose text is still to come.
5. If text was released without tokens, its tokens may come later, with another text. So once text was
   released without tokens, or its tokens contradicted it, tokens of the output are released only with an
   event whose whole text is theirs, byte by byte.
"""

import codecs
import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile, zip_longest
from typing import Any

from engine.protocol import Token, TopLogprob
from engine.text.alignment import LOGPROB_FLOOR, align_tokens, cut_tokens

TextAndTokens = tuple[str, tuple[Token, ...]]
"""A text and its tokens, whose texts joined are the text. Or a text without tokens."""

_MAX_ID = 2**31
"""No vocabulary has so many tokens."""
_SPACES = re.compile(r"[\s\u2581]+")  # SentencePiece writes a space as U+2581
_PARTS = re.compile("\ufffd+")  # parts of split characters, which are not ASCII


class TokenReader:
    """One output's tokens. A token's `text` is the upstream's string for it, or U+FFFD without one.

    `num_top`: the alternatives of each token. None: logprobs are left out, because Weir asked for them, and
    the caller did not. `echo_ids`: the prompt's ids, if they are echoed. The first tokens get these ids.
    """

    def __init__(self, num_top: int | None, echo_ids: Sequence[int]) -> None:
        self._num_top = num_top
        self._echo_ids = list(echo_ids)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, choice: Mapping[str, Any]) -> list[Token]:
        logprobs = choice.get("logprobs") or {}
        ids = checked_ids(choice.get("token_ids") or ())
        if entries := logprobs.get("content"):
            tokens = [self._token(e["token"], e.get("bytes"), e["logprob"], _chat_top(e)) for e in entries]
        elif strings := logprobs.get("tokens"):
            numbers, tops = logprobs.get("token_logprobs") or (), logprobs.get("top_logprobs") or ()
            rows = zip_longest(strings, numbers, tops)
            tokens = [self._token(string, None, number, _completion_top(top)) for string, number, top in rows]
        else:
            tokens = [Token(id=None, text="\ufffd") for _ in ids]
        if self._echo_ids:
            ids, self._echo_ids = self._echo_ids[: len(tokens)], self._echo_ids[len(tokens) :]
        elif len(ids) != len(tokens):
            return tokens
        return [t if i is None else t._replace(id=i) for t, i in zip_longest(tokens, ids)]

    def _token(
        self, string: str, given: Sequence[int] | None, logprob: float | None, top: list[TopLogprob]
    ) -> Token:
        raw = _raw(string, given)
        text = self._utf8.decode(raw)
        if self._num_top is None:
            return Token(id=None, text=text, raw=raw)
        top.sort(key=lambda alternative: -alternative.logprob)
        number = None if logprob is None else finite(logprob)
        return Token(id=None, text=text, raw=raw, logprob=number, top=tuple(top[: self._num_top]))


def checked_ids(ids: Sequence[Any]) -> Sequence[int]:
    """The upstream's token ids. Raises `TypeError` for a value that is not an id."""
    if not all(map(is_id, ids)):
        raise TypeError("token ids are not numbers")
    return ids


def is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_ID


def _chat_top(entry: Mapping[str, Any]) -> list[TopLogprob]:
    tops = entry.get("top_logprobs") or ()
    return [TopLogprob(None, _raw(top["token"], top.get("bytes")), finite(top["logprob"])) for top in tops]


def _completion_top(top: Mapping[str, float] | None) -> list[TopLogprob]:
    return [TopLogprob(None, string.encode(), finite(number)) for string, number in (top or {}).items()]


def _raw(string: str, given: Sequence[int] | None) -> bytes:
    if isinstance(given, int):
        raise TypeError("a token's bytes are not a list")  # bytes(10**9) would be a gigabyte
    return string.encode() if given is None else bytes(given)


def finite(logprob: float | None) -> float:
    """The logprob, at least `LOGPROB_FLOOR`. Raises `TypeError` if it is not a number."""
    if logprob is None or not math.isfinite(logprob):
        return LOGPROB_FLOOR
    return max(float(logprob), LOGPROB_FLOOR)


class TokenAligner:
    """One output's tokens and text. `stop`: its stop strings. With any, text may lag behind tokens."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = stop
        self._max_waiting = 32 + max(map(len, stop), default=0)
        self._tokens: list[Token] = []
        self._text = ""
        self.is_bare = False
        """Whether rule 5 holds. Then all text passes as it comes."""

    @property
    def waits(self) -> bool:
        """Whether some text is not released yet."""
        return bool(self._text)

    def feed(self, tokens: Sequence[Token], text: str, *, more: bool = False) -> TextAndTokens:
        """Add tokens and text. Returns those that are settled. A token's `text` is its string. `more`: more
        text follows for these tokens."""
        self._text += text
        if self.is_bare:
            return self.mute(), own_tokens(tokens, text)
        self._tokens += tokens
        if not self._tokens:
            self.is_bare = bool(text)
            return self._release(0, len(self._text), ())
        fitted, length = self._fit()
        if length < len(self._text):
            if not more and not self._stop:
                if not _may_be(self._tokens, self._text):
                    return self.mute(), ()
                together = align_tokens(self._tokens, self._text)
                return self._release(len(self._tokens), len(self._text), together)
            if len(self._tokens) - len(fitted) > self._max_waiting:
                return self.mute(), ()
        return self._release(len(fitted), length, fitted)

    def mute(self) -> str:
        """Begin rule 5, and drop the tokens that wait. Returns the text that waits."""
        self.is_bare = True
        text, self._text = self._text, ""
        self._tokens.clear()
        return text

    def flush(self) -> TextAndTokens:
        """The output has ended: all that is left, without tokens of a stop string."""
        fitted, length = self._fit()
        rest, text = self._tokens[len(fitted) :], self._text[length:]
        strings = "".join(token.text for token in rest)
        if strings.startswith(text) and any(strings.startswith(stop, len(text)) for stop in self._stop):
            rest = cut_tokens(rest, len(text))
        pieces = (*fitted, *align_tokens(rest, text))
        return self._release(len(self._tokens), len(self._text), align_tokens(pieces, self._text))

    def _fit(self) -> tuple[tuple[Token, ...], int]:
        """The waiting tokens whose text has come, with their texts, and the length of this text."""
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
            elif token.text.startswith(ahead):  # the rest of its text is still to come
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
        """The tokens from `first` on whose strings are not known, and the position of the next token's text,
        or None if that text has not come."""
        run = list(takewhile(lambda t: "\ufffd" in t.text or not t.text, islice(self._tokens, first, None)))
        last = first + len(run)
        if last == len(self._tokens):
            return run, None if self._stop else len(self._text)
        strings = re.escape("".join(token.text for token in run))
        unknown = _PARTS.sub(lambda parts: rf"[^\x00-\x7f]{{1,{len(parts[0])}}}", strings)
        found = re.compile(f"({unknown}){re.escape(self._tokens[last].text)}").match(self._text, pos)
        return run, found.end(1) if found else None

    def _release(self, num_tokens: int, length: int, tokens: tuple[Token, ...]) -> TextAndTokens:
        text, self._text = self._text[:length], self._text[length:]
        del self._tokens[:num_tokens]
        return text, tokens


def own_tokens(tokens: Sequence[Token], text: str) -> tuple[Token, ...]:
    """The tokens if each has bytes of the text and they have all of it (rule 5). Empty if they do not."""
    if not all(token.raw for token in tokens) or "".join([token.text for token in tokens]) != text:
        return ()
    return tuple(tokens) if b"".join([token.raw for token in tokens]) == text.encode() else ()


def _may_be(tokens: Sequence[Token], text: str) -> bool:
    """Whether the tokens can make this text: some strings are unknown, or they differ in spaces at most."""
    strings = "".join(token.text for token in tokens)
    return "\ufffd" in strings or _SPACES.sub("", strings) == _SPACES.sub("", text)
