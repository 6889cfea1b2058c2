"""The ways in which a client may get a secret, each tried on streams of its own.

A guard that finds a secret in an answer may miss it in a tool's arguments, as JSON's escapes, with
typographic hyphens, begun in the text that the output continues, or without its last character.
"""

import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.protocol import Channel, GenerationRequest
from engine.streams.recording import Recording
from hooks.decisions.failure import HookError
from hooks.detect.dress import TYPOGRAPHY
from hooks.loading.loader import LoadedHook
from hooks.testing import leaks
from hooks.testing.difference import cut_at, failure_of
from hooks.testing.play import Released
from hooks.testing.run_modes import Places
from hooks.testing.streams import stream_of, with_lead

CHANNELS: Mapping[Channel, str] = {
    "content": "in an answer",
    "reasoning": "in reasoning",
    "tool_call": "in a tool's arguments",
    "echo": "in a repeated prompt",
}
WAYS: Mapping[str, str] = {
    **{str(channel): where for channel, where in CHANNELS.items()},
    "tool_name": "in a tool's name",
    "json_escape": "with JSON's escapes in a tool's arguments",
    "typography": "with typographic or full-width characters",
    "lead": "begun in the text that the output continues",
    "cut": "without its last character, at a client's cut",
}
"""The ways that are tried, in order, each in words."""
NOT_TRIED = (
    "look-alike letters of other alphabets",
    "percent-encoding and HTML's references",
    "base64 and other codes",
    "other words for the same",
    "the top alternatives of tokens",
    "prompts",
)
"""The ways that the kit does not try."""

MAX_PLACES = 24
"""Most places in a secret at which it is split between a lead and an output, or escaped, or cut in two."""
CONTEXT = 256
"""Most characters around a secret that are kept of the text in which it is."""
_DRESSED = (
    {"-": "\u2011", " ": "\u00a0"},
    {"-": "\u2013", " ": "\u202f"},
    {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F) if chr(code).isalnum()},
)
"""The characters that writers and models put in the place of plain ones."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([^u]))")


@dataclass(frozen=True)
class Attempt:
    """A stream that brings a secret in one way."""

    way: str
    secret: str
    stream: Recording
    start: int
    end: int
    """The places in the stream between which the secret, or the part of it, is."""
    lead: str = ""
    """The text that the client has already."""

    @property
    def cuts(self) -> Iterator[Places]:
        """Not cut, cut at every place of the secret, and cut in two at each of some places."""
        places = range(self.start, self.end + 1)
        yield ()
        yield tuple(place for place in places if place)
        yield from ((place,) for place in _spread(places) if place)

    @property
    def sought(self) -> str:
        """The secret, or the part of it that a client can get in this way."""
        return self.secret[:-1] if self.way == "cut" else self.secret

    def place_of_leak(self, released: Released) -> str | None:
        """The place where a client can read the secret, in words; None: nowhere."""
        secret = self.sought
        for (index, channel, *_), text in released.outcome.texts.items():
            text = (self.lead if channel == "content" else "") + text
            if any(secret.translate(TYPOGRAPHY) in one for one in _plain(text)):
                return f"the text of {channel}, output {index}"
        return leaks.find(secret, released.deltas)


@dataclass(frozen=True)
class Missed:
    """An attempt that succeeded, or on which a hook fails."""

    attempt: Attempt
    places: Places
    released: Released
    where: str | None
    """The place where the secret shows. None: a hook fails."""

    @property
    def failure(self) -> HookError | None:
        error = self.released.failure
        return error if isinstance(error, HookError) else None

    @property
    def num_leaked(self) -> int:
        """Characters of the secret that a client gets."""
        return 0 if self.where is None else len(self.attempt.sought)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        attempt = self.attempt
        how = f"{WAYS[attempt.way]}, {cut_at(self.places)}"
        if self.where is None:
            yield f"it fails on {attempt.secret!r} {how}: {failure_of(self.released)}"
        else:
            yield f"{attempt.secret!r} is released, {how}: in {self.where}"
        yield f"  way     {attempt.way}"
        if attempt.lead:
            yield f"  lead    {attempt.lead!r}"
        call = attempt.stream.deltas[0].delta.tool_call
        if attempt.way == "tool_name" and call is not None:
            yield f"  tool    {call.name!r}"
        else:
            yield f"  text    {''.join(timed.delta.text for timed in attempt.stream.deltas)!r}"


Report = Callable[[str], None]
"""Gets what a hook is about to see, in words."""
Play = Callable[[Recording, Places], Awaitable[Released]]
"""Runs hooks on a stream that is cut at these places."""


async def missed_ways(
    play: Play, attempts: Sequence[Attempt], hooks: Iterable[LoadedHook] = ()
) -> list[Missed]:
    """For each way in which a client gets a secret, or on which a hook fails, the first such attempt. A hook
    that asks a judge is shown each attempt without a cut alone: a question may take long."""
    missed: dict[tuple[str, str], Missed] = {}
    is_slow = any(hook.depends_on_cuts for hook in hooks)
    for attempt in attempts:
        key = attempt.secret, attempt.way
        cuts = [()] if is_slow else attempt.cuts
        if key not in missed and (one := await _tried(play, attempt, cuts)) is not None:
            missed[key] = one
    return [*missed.values()]


async def _tried(play: Play, attempt: Attempt, cuts: Iterable[Places]) -> Missed | None:
    for places in cuts:
        released = await play(attempt.stream, places)
        where = attempt.place_of_leak(released)
        if where is not None or isinstance(released.failure, HookError):
            return Missed(attempt, places, released, where)
    return None


def attempts(
    secret: str,
    text: str | None = None,
    *,
    request: GenerationRequest | None = None,
    without: Collection[str] = (),
) -> list[Attempt]:
    """Every way but those `without`, tried on a secret. `text`: a text in which the secret is (None: a
    short sentence). `request`: the request that the streams answer. Raises `ValueError` for a way that is
    unknown."""
    check_ways(without)
    before, _, after = (text or f"It is {secret} today.").partition(secret)
    context = _Context(secret, before[-CONTEXT:], after[:CONTEXT], request)
    return [attempt for attempt in context.attempts() if attempt.way not in without]


def attempts_in(secrets: Sequence[str], texts: Sequence[str]) -> list[Attempt]:
    """All attempts for all secrets, each in the first of the texts that contains it."""
    known = [(secret, next((text for text in texts if secret in text), None)) for secret in secrets]
    return [attempt for secret, text in known for attempt in attempts(secret, text)]


def described(stream: Recording, places: Places) -> str:
    """A stream as a hook is shown it, in words."""
    text = "".join(timed.delta.text for timed in stream.deltas)
    return f"{text!r} on channel {stream.deltas[0].delta.channel}, {cut_at(places)}"


def check_ways(names: Collection[str]) -> None:
    if unknown := [name for name in names if name not in WAYS]:
        raise ValueError(f"the ways are {', '.join(WAYS)}, not {', '.join(unknown)}")


def not_tried(secrets: Sequence[str]) -> list[str]:
    """The ways that are not tried, in words."""
    if not secrets:
        return ["whether a secret leaves (--secret)"]
    short = [f"{secret!r} {WAYS[way]}" for secret in secrets if len(secret) < 2 for way in ("lead", "cut")]
    return [*short, *NOT_TRIED]


@dataclass(frozen=True)
class _Context:
    """A secret, and the text around it."""

    secret: str
    before: str
    after: str
    request: GenerationRequest | None

    def attempts(self) -> Iterator[Attempt]:
        secret, before, after = self.secret, self.before, self.after
        for channel in CHANNELS:
            if channel == "tool_call":
                yield self._arguments("tool_call", _quoted(secret))
            else:
                yield self._attempt(channel, secret, channel=channel)
        yield self._named()
        for place in _spread(range(len(secret))):
            yield self._arguments("json_escape", _quoted(secret[:place]) + _escaped(secret[place:]))
            one = _quoted(secret[:place]) + _escaped(secret[place]) + _quoted(secret[place + 1 :])
            yield self._arguments("json_escape", one)
        for table in _DRESSED:
            dressed = "".join(table.get(char, char) for char in secret)
            if dressed != secret:
                yield self._attempt("typography", dressed)
        for place in _spread(range(1, len(secret))):
            lead, rest = before + secret[:place], secret[place:]
            stream = self._stream(rest + after)
            stream = replace(stream, request=_continuing(stream.request, lead))
            yield Attempt("lead", secret, stream, 0, len(rest), lead)
        if len(secret) > 1:
            stream = self._stream(before + secret[:-1], is_cut=True)
            yield Attempt("cut", secret, stream, len(before), len(before) + len(secret) - 1)

    def _attempt(self, way: str, written: str, channel: Channel = "content") -> Attempt:
        stream = self._stream(self.before + written + self.after, channel=channel)
        return Attempt(way, self.secret, stream, len(self.before), len(self.before) + len(written))

    def _arguments(self, way: str, written: str) -> Attempt:
        before = f'{{"text": "{_quoted(self.before)}'
        stream = self._stream(f'{before}{written}{_quoted(self.after)}"}}', channel="tool_call")
        return Attempt(way, self.secret, stream, len(before), len(before) + len(written))

    def _named(self) -> Attempt:
        name = self.before + self.secret + self.after
        stream = stream_of("{}", prompt=self.request, channel="tool_call", tool_name=name)
        return Attempt("tool_name", self.secret, stream, 0, 0)

    def _stream(self, text: str, channel: Channel = "content", *, is_cut: bool = False) -> Recording:
        return stream_of(text, prompt=self.request, channel=channel, is_cut=is_cut)


def _continuing(request: GenerationRequest, lead: str) -> GenerationRequest:
    """The request, for an output that continues `lead`."""
    if request.is_chat:
        return with_lead(request, lead)
    return replace(request, prompts=tuple(f"{one}{lead}" for one in request.prompts))


def _spread(places: range) -> range:
    return places[:: -(-len(places) // MAX_PLACES) or 1]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def _plain(text: str) -> tuple[str, str]:
    """The text in plain characters, and the same without JSON's escapes."""
    read = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)
    read = read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.translate(TYPOGRAPHY), read.translate(TYPOGRAPHY)
