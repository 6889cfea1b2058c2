"""Texts that come in several questions, each time all of the text so far.

The first question of a text cannot be told from the only one, so the text is judged whole. If a second
question has more of it, a guard reads the text from its beginning, and stays open: from then on each question
shows it only what is new. A text that does not begin with the last one is another text, and starts anew.
"""

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from hooks.decisions.failure import HookError
from hooks.pipeline.open_guard import OpenGuard
from proxy.deployment.deployment import Deployment
from proxy.http.admission import Exchange
from proxy.http.guard_api.reading import BlockedError, check_has_hooks, read_end, read_more, read_whole
from proxy.service.service import SERVICE, Service
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import JudgedText

IDLE_SECONDS = 60.0
"""A text without a question for so long has ended: its guard gets its one last call (contract 2.6)."""
MAX_OPEN = 20_000
"""Texts with an open guard in this process. One caller may have half of them."""
MAX_SEEN = 65_536
"""Texts of which one question came. The oldest is forgotten: its next question counts as its first."""
UNCHANGED = "streaming_transform_mode"
"""The reason to block a text that a gateway sends without the changes that it was answered."""
LOOK_INTERVAL = 1.0
"""Seconds between two looks at idle texts."""

Key = tuple[str, str, int]
"""The caller, the caller's name for the answer, and the text's place in it."""


class Digest(tuple[int, bytes]):
    """The length and the hash of a text: enough to know it again."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> "Digest":
        hashed = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16)
        return cls((len(text), hashed.digest()))

    def begins(self, text: str) -> bool:
        """Whether the text begins with this one."""
        length, _ = self
        return length <= len(text) and Digest.of(text[:length]) == self


@dataclass(slots=True, eq=False)
class SeenText:
    """A text of which one question came."""

    read: Digest
    let_out: Digest
    """The part of the text that the client may have by now."""
    changed: Digest | None
    """The text that was answered, if it is another than the one that was asked about."""


@dataclass(slots=True, eq=False)
class OpenText:
    """A text with an open guard."""

    guard: OpenGuard
    deployment: Deployment
    running: ExitStack
    """Keeps the deployment, and so its hooks, until the guard is closed."""
    read: Digest
    num_untouched: int = 0
    """The first characters of the text that the hooks released as they are: each question has them."""
    rewritten: str = ""
    """All that the hooks released behind these."""
    changed: Digest | None = None
    """As `SeenText.changed`."""
    blocked: str | None = None
    """The reason of the hook that ended the text."""
    used_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read_on(self, text: str) -> None:
        """Show the guard what is new in `text`, which begins with what it has read."""
        new = text[self.read[0] :]
        try:
            if new:
                self._add("".join(await read_more(self.guard, new)), text)
        except BlockedError as error:
            self.blocked = error.reason
        self.read = Digest.of(text)

    def _add(self, released: str, text: str) -> None:
        if not self.rewritten and text.startswith(released, self.num_untouched):
            self.num_untouched += len(released)
        else:
            self.rewritten += released

    def released(self, text: str) -> str:
        """All that the hooks released of `text`."""
        return text[: self.num_untouched] + self.rewritten

    async def end(self, *, aborted: bool) -> None:
        """Give the guard its last call. `aborted`: the text did not come to its end."""
        try:
            if not aborted and self.blocked is None:
                with suppress(BlockedError, HookError):
                    await read_end(self.guard)
        finally:
            with self.running:
                await self.guard.close()


class OpenTexts:
    """All texts of this process that may go on."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: OrderedDict[Key, SeenText] = OrderedDict()
        self._open: OrderedDict[Key, OpenText] = OrderedDict()
        """The one that is idle for longest comes first."""
        self._num_of: Counter[str] = Counter()
        """By caller."""

    def __len__(self) -> int:
        return len(self._open)

    async def judge(self, exchange: Exchange[Any], key: Key, text: str) -> JudgedText:
        """Judge the text so far. Raises `HookError`, and `APIError` 429 for one open text too many."""
        found = self._open.get(key)
        if found is not None:
            async with found.lock:
                is_open = self._open.get(key) is found
                if is_open and found.deployment is exchange.arrival.deployment and found.read.begins(text):
                    return await self._read_on(key, found, text)
            await self._end(key, found, aborted=True)
            if _goes_on_after(found.changed, text):
                return JudgedText(blocked=UNCHANGED)
        seen = self._seen.pop(key, None)
        if seen is not None and seen.read[0] < len(text) and seen.read.begins(text):
            return await self._open_again(exchange, key, seen, text)
        if seen is not None and _goes_on_after(seen.changed, text):
            return JudgedText(blocked=UNCHANGED)
        return await self._judge_first(exchange, key, text)

    async def _judge_first(self, exchange: Exchange[Any], key: Key, text: str) -> JudgedText:
        guard = exchange.opened(exchange.request, exchange.listener())
        try:
            check_has_hooks(guard)
            decided, rest = await read_whole(guard, text)
        except BlockedError as error:
            return JudgedText(blocked=error.reason)
        finally:
            await guard.close()
        changed = _changed(text, decided + rest)
        self._seen[key] = SeenText(Digest.of(text), Digest.of(decided), changed)
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return JudgedText(text=decided + rest, num_undecided=len(rest))

    async def _open_again(self, exchange: Exchange[Any], key: Key, seen: SeenText, text: str) -> JudgedText:
        caller, *_ = key
        if len(self._open) >= MAX_OPEN or self._num_of[caller] >= MAX_OPEN // 2:
            reason = f"Too many texts are open: at most {MAX_OPEN} are kept, and half of them for one caller."
            raise APIError(429, reason, "rate_limit_error", code="rate_limit_exceeded", retry_after=1)
        # The first question's decisions were reported when it was answered.
        guard = exchange.opened(exchange.request, exchange.listener(), num_repeated=seen.read[0])
        running = ExitStack()
        deployment = running.enter_context(exchange.arrival.deployment.running())
        opened = self._open[key] = OpenText(guard, deployment, running, Digest.of(""))
        self._num_of[caller] += 1
        async with opened.lock:
            await self._read_on(key, opened, text[: seen.read[0]])
            if not seen.let_out.begins(opened.released(text)):
                await self._end(key, opened, aborted=True)
                raise HookError("guard")  # the client has text that the hooks do not release any more
            return await self._read_on(key, opened, text)

    async def _read_on(self, key: Key, found: OpenText, text: str) -> JudgedText:
        try:
            if found.blocked is None:
                await found.read_on(text)
        except BaseException:
            await self._end(key, found, aborted=True)
            raise
        found.used_at = time.monotonic()
        self._open.move_to_end(key)
        if found.blocked is not None:
            return JudgedText(blocked=found.blocked)
        rest = await found.guard.look_ahead() or ""
        answered = found.released(text) + rest
        found.changed = _changed(text, answered)
        return JudgedText(text=answered, num_undecided=len(rest))

    async def _end(self, key: Key, text: OpenText, *, aborted: bool) -> None:
        if self._open.get(key) is text:
            del self._open[key]
            caller, *_ = key
            self._num_of[caller] -= 1
            if not self._num_of[caller]:
                del self._num_of[caller]
            await text.end(aborted=aborted)

    async def _look(self) -> None:
        """End the texts that are idle, and those whose hooks are about to be closed."""
        current, now = self._service.deployment, time.monotonic()
        is_ending = self._service.stopping.is_set()
        for key, text in list(self._open.items()):
            if text.lock.locked():
                continue
            is_stale = is_ending or text.deployment is not current
            if is_stale or now - text.used_at >= IDLE_SECONDS:
                await self._end(key, text, aborted=is_stale)
                await asyncio.sleep(0)  # other requests are served between two last calls

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """For the application's `cleanup_ctx`."""
        task = asyncio.get_running_loop().create_task(self._keep_looking())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for key, text in list(self._open.items()):
            await self._end(key, text, aborted=True)

    async def _keep_looking(self) -> None:
        stopping = self._service.stopping
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), LOOK_INTERVAL)
            await self._look()
        while True:  # requests that still run may open more texts
            await asyncio.sleep(LOOK_INTERVAL)
            await self._look()


def _changed(asked: str, answered: str) -> Digest | None:
    return None if answered == asked or not answered else Digest.of(answered)


def _goes_on_after(changed: Digest | None, text: str) -> bool:
    """Whether a gateway asks about its last answer with more text behind it, and not about what it has sent.

    LiteLLM does so in its mode `block_only`: it has sent the text without the change that was answered.
    """
    return changed is not None and changed.begins(text)


def open_texts_of(app: web.Application) -> OpenTexts:
    texts = OpenTexts(app[SERVICE])
    app.cleanup_ctx.append(texts.run)
    return texts
