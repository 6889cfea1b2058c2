"""An engine that plays recorded answers, with their times if asked. For tests, demos and benchmarks."""

import math
import time
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson

from engine.protocol import Delta, Deltas, EngineError, GenerationRequest, RequestError, SamplingParams, Usage
from engine.protocol.fields.asked import check_fields
from engine.protocol.fields.support import FieldSupport
from engine.streams.recording import Recording
from engine.upstream.request_tracker import NO_LOGITS, TrackedEngine

MIN_SPEED = 0.001
"""One recorded second takes a quarter of an hour."""


class ReplayEngine(TrackedEngine):
    """Answers a request with the recording of a similar request.

    `recordings`: a folder of `*.jsonl` files, which `start` reads in name order, or recordings. A recording
    answers requests with the same messages or prompts and the same `n`, if both want the prompt returned or
    both do not. A recorded chat also answers the responses endpoint. If several recordings fit, the engine
    takes the one that shares the most sampling parameters with the request, or the first of equals. A
    message's content may be a text or one text part: both are the same. The recorded deltas come back
    unchanged, with token ids and logprobs even if the request did not ask for them.

    `speed`: 0 does not wait, 1 keeps the recorded times, 2 is twice as fast. Raises `ValueError` for a speed
    that would wait for ever.
    """

    fields = FieldSupport(
        honoured=frozenset({"n", "return_token_ids", "prompt_logprobs"}),
        honoured_in_completions=frozenset({"echo"}),
        refused=NO_LOGITS,
    )

    def __init__(self, recordings: Iterable[Recording] | Path | str, *, speed: float = 0.0) -> None:
        if speed and not MIN_SPEED <= speed < math.inf:
            raise ValueError(f"a replay's speed must be 0, or from {MIN_SPEED:g} on, not {speed:g}")
        super().__init__()
        self.speed = speed
        self._folder = Path(recordings) if isinstance(recordings, Path | str) else None
        self._recordings: dict[bytes, list[Recording]] = {}
        if not isinstance(recordings, Path | str):
            self._add(recordings)

    async def start(self) -> None:
        """Read the folder. Raises `ValueError` for an empty folder or a file that is not a recording."""
        if self._folder is not None:
            paths = sorted(self._folder.glob("*.jsonl"))
            if not paths:
                raise ValueError(f"{self._folder} holds no recording (*.jsonl).")
            self._recordings.clear()
            self._add(map(Recording.load, paths))

    async def generate(self, request: GenerationRequest) -> Deltas:
        check_fields(request, self.fields)
        recording = self._find(request)
        with self._requests.track() as tracked:
            started = time.monotonic()
            for timed in recording.deltas:
                await self._wait(started, timed.t)
                delta = timed.delta
                tracked.usage = delta.usage or _counted(tracked.usage, delta)
                yield delta
            if recording.failure:
                await self._wait(started, recording.failure.t)
                raise EngineError(recording.failure.message, status=recording.failure.status)

    def _add(self, recordings: Iterable[Recording]) -> None:
        for recording in recordings:
            self._recordings.setdefault(_key(recording.request), []).append(recording)

    def _find(self, request: GenerationRequest) -> Recording:
        found = self._recordings.get(_key(request))
        if not found:
            name = "messages" if request.messages else "prompts"
            asked = f"{len(getattr(request, name))} {name}"
            raise RequestError(
                f"No recording matches this request (endpoint {request.endpoint}, {asked}, "
                f"n {request.sampling.n}, {'with' if request.returns_prompt else 'without'} the prompt)."
            )
        return max(found, key=lambda recording: _likeness(recording.request.sampling, request.sampling))

    def _wait(self, started: float, t: float) -> Awaitable[None]:
        return self._requests.pause(started + t / self.speed - time.monotonic() if self.speed else 0)


def _key(request: GenerationRequest) -> bytes:
    messages = [_plain(message) for message in request.messages]
    asked = (request.is_chat, messages, request.prompts, request.sampling.n, request.returns_prompt)
    return orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in message.items() if value is not None}
    match fields.get("content"):
        case [{"type": "text", "text": str(text)}]:
            fields["content"] = text
    return fields


def _likeness(a: SamplingParams, b: SamplingParams) -> int:
    return sum(getattr(a, field.name) == getattr(b, field.name) for field in fields(SamplingParams))


def _counted(usage: Usage, delta: Delta) -> Usage:
    drawn = 0 if delta.channel == "echo" else len(delta.tokens) or bool(delta.text)
    return Usage(usage.prompt_tokens, usage.completion_tokens + drawn)
