"""The paragraphs of prompts that a guard has refused: each is refused until the caller says more after it.

Clients send a refused text again: once more at once, beside another question such as that for a title, and
then for good, as a part of the conversation's history. Each process that runs the guard remembers for
itself, by keyed digests.
"""

import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from time import monotonic

from hooks import GenerationRequest, PromptText
from hooks.prompts.texts import prompt_texts

_MOST = 16 * 1024
"""Paragraphs that are remembered. The oldest are forgotten."""
_SECONDS = 24 * 3600.0
_GAP = re.compile(r"\n\s*\n\s*")
_NEW = frozenset({"user", "tool", "document"})


class RefusedBefore:
    def __init__(self, now: Callable[[], float] = monotonic, most: int = _MOST) -> None:
        self._now = now
        self._most = most
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        """For each paragraph, until when it is remembered, and the digest of what the caller said after."""
        self._lock = threading.Lock()  # prompts are read on several threads

    def new_texts(self, request: GenerationRequest) -> "NewTexts":
        return NewTexts(self, request)

    def after(self, text: bytes) -> bytes | None:
        """The caller's words after a paragraph when it was refused. None: it was not refused."""
        with self._lock:
            until, after = self._known.get(text, (0.0, b""))
            return after if until > self._now() else None

    def remember(self, texts: Iterable[tuple[bytes, bytes]]) -> None:
        """`texts`: the digest of each, and of what the caller said after it."""
        with self._lock:
            for text, after in texts:
                self._known.pop(text, None)
                self._known[text] = self._now() + _SECONDS, after
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def digest(self, *told: str | bytes) -> bytes:
        made = hashlib.blake2b(key=self._key, digest_size=16)
        for one in told:
            # Clients trim a text or end its line when they send it again.
            read = one if isinstance(one, bytes) else " ".join(one.split()).encode(errors="surrogatepass")
            made.update(len(read).to_bytes(8, "big") + read)
        return made.digest()


class NewTexts:
    """The words of one request after the model's last answer, but for paragraphs that were refused before the
    caller said something more. Clients put the next words into the same text, the same message, or another.
    """

    def __init__(self, before: RefusedBefore, request: GenerationRequest) -> None:
        self._before = before
        self._request = request
        answers = (i for i, one in enumerate(request.messages) if one.get("role") == "assistant")
        self._last_answer = max(answers, default=-1)

    def has(self, text: PromptText, start: int, end: int) -> bool:
        """Whether the paragraphs of these characters are new."""
        if text.source not in _NEW or not _is_after(self._last_answer, text.place):
            return False
        paragraphs, after = self._read(text, start, end)
        known = self._before.after(paragraphs)
        return known is None or known == after

    def refuse(self, found: Iterable[tuple[PromptText, int, int]]) -> None:
        """Remember that these characters are refused, unless no answer was asked for: a count of tokens is no
        turn of a conversation."""
        if self._request.generates:
            self._before.remember([self._read(*one) for one in found])

    def _read(self, text: PromptText, start: int, end: int) -> tuple[bytes, bytes]:
        """The digests of the paragraphs, and of what the caller says after them."""
        first = max((gap.end() for gap in _GAP.finditer(text.text, 0, start)), default=0)
        gap = _GAP.search(text.text, end)
        last = gap.start() if gap else len(text.text)
        after, rest = self._after.get(text, b""), text.text[last:]
        paragraphs = self._before.digest(self._request.caller, text.text[first:last])
        return paragraphs, self._before.digest(after, rest) if rest.strip() else after

    @cached_property
    def _after(self) -> dict[PromptText, bytes]:
        """The digest of all that the caller says in messages after each text, or after its last repetition
        in the same message."""
        digests: dict[PromptText, bytes] = {}
        after = b""
        for text in reversed(prompt_texts(self._request)):
            if text.source in _NEW and text.place.startswith("messages["):
                digests.setdefault(text, after)
                after = after if text.is_joined else self._before.digest(after, text.text)
        return digests


def _is_after(message: int, place: str) -> bool:
    """Whether the place is in a message after this one, or in no message."""
    index = place.removeprefix("messages[").partition("]")[0]
    return not place.startswith("messages[") or not index.isdecimal() or int(index) > message
