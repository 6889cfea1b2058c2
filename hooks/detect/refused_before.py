"""The texts of prompts that a guard has refused, so that it refuses each of them once.

Clients send a refused text again: it is a part of the conversation's history. Each process that runs the
guard remembers for itself, by a keyed digest.
"""

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic

from hooks import GenerationRequest, PromptText

_MOST = 16 * 1024
"""Texts that are remembered. The oldest are forgotten."""
_SECONDS = 24 * 3600.0
_NEW = frozenset({"user", "tool", "document"})


class RefusedBefore:
    def __init__(self, now: Callable[[], float] = monotonic, most: int = _MOST) -> None:
        self._now = now
        self._most = most
        self._key = os.urandom(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()  # prompts are read on several threads

    def rule_for(self, request: GenerationRequest) -> Callable[[PromptText], bool]:
        """Tells of each text of the request whether it is new: the caller says it after the model's last
        answer, and it was not refused before."""
        answers = (i for i, one in enumerate(request.messages) if one.get("role") == "assistant")
        return partial(self._is_new, request.caller, max(answers, default=-1))

    def _is_new(self, caller: str, last_answer: int, text: PromptText) -> bool:
        if text.source not in _NEW or not _is_after(last_answer, text.place):
            return False
        with self._lock:
            return self._until.get(self._digest(caller, text.text), 0.0) <= self._now()

    def remember(self, request: GenerationRequest, texts: Iterable[PromptText]) -> None:
        """Remember the texts, unless no answer was asked for: a count of tokens is no turn of a
        conversation."""
        if not request.generates:
            return
        with self._lock:
            for text in texts:
                digest = self._digest(request.caller, text.text)
                self._until.pop(digest, None)
                self._until[digest] = self._now() + _SECONDS
            while len(self._until) > self._most:
                self._until.popitem(last=False)

    def _digest(self, caller: str, text: str) -> bytes:
        told = f"{caller}\0{text}".encode(errors="surrogatepass")
        return hashlib.blake2b(told, key=self._key, digest_size=16).digest()


def _is_after(message: int, place: str) -> bool:
    """Whether the place is in a message after this one, or in no message."""
    index = place.removeprefix("messages[").partition("]")[0]
    return not place.startswith("messages[") or not index.isdecimal() or int(index) > message
