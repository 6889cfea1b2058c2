"""Recordings: a request, and an engine's answer with its times, as JSON lines (UTF-8, one object a line).

The first line is the request:

    {"version": 1, "request": {"request_id": "r1", "model": "m", "endpoint": "chat", "messages": [...]}}

It has the fields of `GenerationRequest` but `caller`; `sampling` has those of `SamplingParams`. Each further
line is a `Delta`. Its `t` is the time in seconds since the request, and never decreases:

    {"t": 0.031, "text": "Hi", "tokens": [{"id": 17, "text": "Hi", "logprob": -0.1}]}
    {"t": 0.052, "finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 1}}

A line may instead be a `Rewind` of an output. Of the lines before it, only the output's first `num_tokens`
tokens remain, and the output has not ended. A reader of a recording gets the deltas that remain at its end.

    {"t": 0.04, "rewind": {"index": 0, "num_tokens": 12}}

The last line may instead say that the engine failed:

    {"t": 0.06, "error": {"message": "The engine failed.", "status": 500}}

If an output has no finish reason and the recording has no error, the client or a hook closed the request.

Fields with a default value are left out, and so is an `error`'s status of 500. `null` means the default of
fields that may be None. A token's bytes are `raw`, in base64 (RFC 4648, section 4). Without `raw`, its bytes
are its `text` in UTF-8. An entry of a token's `top` has `id`, `logprob`, and either `text` or `raw`.

A reader ignores empty lines and unknown fields. It refuses another `version`, a request without the messages
or prompts that its endpoint takes, an output that the request does not ask for, and an error whose status is
not from 400 to 599.
"""

import base64
import re
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from engine.protocol import Delta, Engine, EngineError, GenerationRequest, Rewind, Token, TopLogprob
from engine.protocol.deltas import first_tokens

RECORDING_NAME = re.compile(r"\d{8}T\d{12}-[\w.-]+\.jsonl", re.ASCII)
"""A recording's file: when it began (UTC, in microseconds), and the request's id."""
VERSION = 1


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """A server that reads and writes no recording makes none."""
    return TypeAdapter(kind)


@dataclass(frozen=True, slots=True)
class TimedDelta:
    t: float
    """Seconds since the request."""
    delta: Delta


@dataclass(frozen=True, slots=True)
class TimedRewind:
    t: float
    rewind: Rewind


@dataclass(frozen=True, slots=True)
class Failure:
    """The `EngineError` that ended an answer."""

    t: float
    message: str
    status: int = 500


Line = GenerationRequest | TimedDelta | TimedRewind | Failure


@dataclass(frozen=True, slots=True)
class Recording:
    """One request and its answer. `load` returns a recording equal to the one that `dump` wrote."""

    request: GenerationRequest
    deltas: tuple[TimedDelta, ...]
    failure: Failure | None = None

    @classmethod
    def load(cls, path: Path | str) -> "Recording":
        """Read a file. Raises `ValueError`, with file and line, if it is not a recording."""
        reader = _Reader()
        for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
            try:
                if line.strip():
                    reader.read(orjson.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"{path}, line {number}: {_reason(error)}") from error
        if reader.request is None:
            raise ValueError(f"{path}, line 1: no request")
        return cls(reader.request, tuple(reader.deltas), reader.failure)

    def dump(self, path: Path | str) -> None:
        Path(path).write_bytes(b"".join(line + b"\n" for line in self.lines()))

    def lines(self) -> Iterator[bytes]:
        """The file's lines, each without its newline."""
        yield encode(self.request)
        yield from map(encode, self.deltas)
        if self.failure:
            yield encode(self.failure)


def encode(line: Line) -> bytes:
    """One line, without its newline. Raises `TypeError` for values that JSON does not have."""
    match line:
        case GenerationRequest():
            request = _adapter(GenerationRequest).dump_python(
                line, exclude_defaults=True, exclude={"caller", "caller_body"}
            )
            return _json({"version": VERSION, "request": request})
        case TimedDelta(t, delta):
            return _json({"t": t, **_dump_delta(delta)})
        case TimedRewind(t, rewind):
            return _json({"t": t, "rewind": _adapter(Rewind).dump_python(rewind, exclude_defaults=True)})
        case Failure(t, message, status):
            error = {"message": message} | ({} if status == 500 else {"status": status})
            return _json({"t": t, "error": error})


async def record(engine: Engine, request: GenerationRequest) -> Recording:
    """Run a request to its end and record it, even an `EngineError`. Raises the request's `RequestError`."""
    started = time.perf_counter()
    deltas: list[TimedDelta] = []
    failure = None
    try:
        async with aclosing(engine.generate(request)) as stream:
            async for delta in stream:
                deltas.append(TimedDelta(seconds_since(started), delta))  # noqa: PERF401 (a list comprehension would lose the deltas before an error)
    except EngineError as error:
        failure = Failure(seconds_since(started), str(error), error.status)
    return Recording(request, tuple(deltas), failure)


def seconds_since(started: float) -> float:
    """Seconds since `started`, a value of `time.perf_counter`, rounded as in recordings."""
    return round(time.perf_counter() - started, 6)


def _json(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, default=_sorted, option=orjson.OPT_NON_STR_KEYS)


def _sorted(value: object) -> list[str]:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


class _Reader:
    """Reads a recording's lines, one by one."""

    def __init__(self) -> None:
        self.request: GenerationRequest | None = None
        self.deltas: list[TimedDelta] = []
        self.failure: Failure | None = None

    def read(self, fields: dict[str, Any]) -> None:
        if self.request is None:
            if fields.get("version") != VERSION:
                raise ValueError(f"not a recording of version {VERSION}")
            self.request = _adapter(GenerationRequest).validate_python(fields["request"])
            needed = "messages" if self.request.is_chat else "prompts"
            if not getattr(self.request, needed):
                raise ValueError(f"a request to {self.request.endpoint} without {needed}")
            return
        t = float(fields.pop("t"))
        if self.failure:
            raise ValueError("nothing may follow an error")
        if self.deltas and t < self.deltas[-1].t:
            raise ValueError("t decreases")
        if error := fields.get("error"):
            status = int(error.get("status", 500))
            if not 400 <= status <= 599:
                raise ValueError(f"status {status} is not from 400 to 599")
            self.failure = Failure(t, str(error["message"]), status)
        elif rewind := fields.get("rewind"):
            self._rewind(_adapter(Rewind).validate_python(rewind))
        else:
            delta = _load_delta(fields)
            self._check_index(delta.index)
            self.deltas.append(TimedDelta(t, delta))

    def _check_index(self, index: int) -> None:
        assert self.request is not None
        if not 0 <= index < self.request.num_outputs:
            raise ValueError(f"the request has no output {index}")

    def _rewind(self, rewind: Rewind) -> None:
        self._check_index(rewind.index)
        deltas, self.deltas = self.deltas, []
        num_tokens = rewind.num_tokens
        for timed in deltas:
            if timed.delta.index != rewind.index:
                self.deltas.append(timed)
                continue
            for delta in first_tokens([timed.delta], num_tokens):
                self.deltas.append(TimedDelta(timed.t, delta))
                num_tokens -= delta.num_output_tokens


def _load_delta(fields: dict[str, Any]) -> Delta:
    for token in fields.get("tokens") or ():
        token["top"] = [_known_fields(TopLogprob, top) for top in token.get("top") or ()]
    if fields.get("tokens"):
        fields["tokens"] = [_known_fields(Token, token) for token in fields["tokens"]]
    delta: Delta = _adapter(Delta).validate_python(fields)
    return delta


def _known_fields(kind: type[Token] | type[TopLogprob], fields: dict[str, Any]) -> dict[str, Any]:
    if "raw" in fields:
        fields["raw"] = base64.b64decode(fields["raw"], validate=True)
    else:
        fields["raw"] = str(fields["text"]).encode()
    return {name: fields[name] for name in kind._fields if name in fields}


def _dump_delta(delta: Delta) -> dict[str, Any]:
    fields: dict[str, Any] = _adapter(Delta).dump_python(delta, exclude_defaults=True, exclude={"tokens"})
    if delta.tokens:
        fields["tokens"] = [_dump_token(token) for token in delta.tokens]
    return fields


def _dump_token(token: Token) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": token.id, "text": token.text}
    if token.raw != token.text.encode():
        fields["raw"] = base64.b64encode(token.raw).decode()
    if token.logprob is not None:
        fields["logprob"] = token.logprob
    if token.position is not None:
        fields["position"] = token.position
    if token.rank is not None:
        fields["rank"] = token.rank
    if token.scores is not None:
        fields["scores"] = token.scores
    if token.top:
        fields["top"] = [{"id": t.id, **_dump_raw(t.raw), "logprob": t.logprob} for t in token.top]
    return fields


def _dump_raw(raw: bytes) -> dict[str, str]:
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"raw": base64.b64encode(raw).decode()}


def _reason(error: Exception) -> str:
    """Why a line is wrong. No value is quoted: it may be long, or be text that hooks withhold."""
    if isinstance(error, KeyError):
        return f"no field {error}"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return " ".join(str(error).split())
