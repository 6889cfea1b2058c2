"""Bounds the size of an upstream's answer, and the time that it takes. No I/O."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from engine.protocol import Channel, GenerationRequest, Prompt, Usage
from engine.upstream.usage import UsageCount

MAX_EVENT = 4 * 1024 * 1024
"""Bytes of an event. An answer of 8,000 tokens with their top alternatives needs about two million."""
SLICE = 16 * 1024
"""Bytes of a stream that are read at a time. Other tasks get a turn between two slices."""
LONG_TEXT = 2048
"""Characters of one delta, about. A guard takes microseconds for each. Other tasks get a turn between two
deltas of this length."""
_CHARS_PER_TOKEN = 256
"""No vocabulary that is in use has a token of more characters, and text averages four."""
_PIECES_PER_TOKEN = 16
"""Pieces of text that a token may come in: a server may stream a token's characters one by one."""
_SLACK = 256
"""Pieces that a short answer may have in addition to those of its tokens."""
_AFTER_FINISH = 5.0
"""Seconds that usage and `[DONE]` may take to come after the finish reason."""
_MOST_AFTER_FINISH = 1024 * 1024
"""Bytes that may come after the finish reason."""


class UpstreamOptions(BaseModel):
    """The bounds of an upstream's answer. An answer beyond one of them ends with an error. Those that are a
    `ClassVar` are far beyond what models write: they protect this process from a broken server."""

    model_config = ConfigDict(defer_build=True)

    upstream_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0
    """Seconds that an upstream may take for the first piece of its answer, and from one piece to the next.
    Comments and events without text do not count as a piece (upstreams)"""
    max_upstream_event: ClassVar[int] = MAX_EVENT
    """Longest event of an upstream's stream, in bytes. About twice as much may come between two pieces of an
    answer."""
    max_upstream_output: ClassVar[int] = 16 * 1024 * 1024
    """Longest output of an upstream, in characters. With max_tokens, an output's content and tool calls may
    have about 256 characters and 16 pieces for each token."""
    max_upstream_answer: ClassVar[int] = 256 * 1024 * 1024
    """Longest stream of an upstream, in bytes: all outputs of a request, with their JSON."""


class TooMuchError(ValueError):
    """An upstream sends more than it may. The message names the bound that it passed."""


class Patience:
    """Bounds the time until an upstream's answer continues, and the bytes that it may send until then.

    `now` is the clock of `deadline`.
    """

    def __init__(self, options: UpstreamOptions, now: Callable[[], float]) -> None:
        self._now = now
        self._seconds = options.upstream_timeout
        self._max_silent = 2 * (options.max_upstream_event + SLICE)
        self._left = options.max_upstream_answer
        self._num_silent = 0
        self.has_finish = False
        self.received(has_piece=True)

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self._now() >= self.deadline

    def end(self) -> None:
        """The answer is finished: only its usage is waited for, and not for long."""
        if not self.has_finish:
            self.has_finish = True
            self._seconds = min(self._seconds, _AFTER_FINISH)
            self.received(has_piece=True)
            self._max_silent = min(self._max_silent, _MOST_AFTER_FINISH)

    def received(self, num_bytes: int = 0, *, has_piece: bool = False) -> None:
        """Count bytes of the stream. Raises `TooMuchError`, and counts nothing then. `has_piece`: a piece of
        the answer came with them, and its reader has taken it."""
        if self._num_silent + num_bytes > self._max_silent:
            raise TooMuchError("too many bytes without a piece of the answer")
        if num_bytes > self._left:
            raise TooMuchError("the stream is too long")
        self._num_silent += num_bytes
        self._left -= num_bytes
        if has_piece:
            self._num_silent = 0
            self.deadline = self._now() + self._seconds


class OutputCount:
    """Counts one output: how much it may hold, and its tokens in `count`, which all outputs of the request
    share. `most`: its characters, whatever they are.

    `max_tokens` bounds content and tool calls too, with the prompt if it is echoed. It does not bound
    reasoning, which some servers do not count.
    """

    __slots__ = ("_chars_left", "_count", "_pieces_left", "_text_left")

    def __init__(self, request: GenerationRequest, prompt: Prompt, most: int, count: UsageCount) -> None:
        self._count = count
        self._chars_left = self._text_left = self._pieces_left = most
        if request.sampling.max_tokens is not None:
            num_tokens = request.sampling.max_tokens + (len(prompt) if request.echo else 0)
            self._pieces_left = _PIECES_PER_TOKEN * num_tokens + _SLACK
            self._text_left = _CHARS_PER_TOKEN * (num_tokens + _PIECES_PER_TOKEN)

    @property
    def usage(self) -> Usage:
        """The request's usage so far."""
        return self._count.usage

    def add(self, channel: Channel, num_chars: int, num_pieces: int, num_tokens: int = 0) -> Usage:
        """Count a piece of the output: its characters, the pieces that it came in, and its tokens. Returns
        the request's usage so far. Raises `TooMuchError`, and counts nothing then."""
        if num_chars > self._chars_left:
            raise TooMuchError("an output is too long")
        if channel == "content" or channel == "tool_call":
            if num_chars > self._text_left or num_pieces > self._pieces_left:
                raise TooMuchError("an output is longer than its max_tokens allow")
            self._text_left -= num_chars
            self._pieces_left -= num_pieces
        self._chars_left -= num_chars
        count = self._count
        if num_tokens:
            used = count.usage  # `replace` takes three times as long
            count.usage = Usage(
                used.prompt_tokens,
                used.completion_tokens + num_tokens,
                used.cached_tokens,
                used.reasoning_tokens,
                used.cache_written_tokens,
                used.cache_written_1h_tokens,
                True,
            )
        return count.usage
