"""Tracks what a client has received, so that a rewind never withdraws it (contract 8.3).

Positions count the output's tokens (`Token.position`). Delivered text stays delivered, so an output goes back
to the token after the last one that is wholly decided, and no further. The output then begins anew, with new
streams. The hooks release the kept tokens' text once more; it must equal the text that they released before,
and it is not delivered again.
"""

from dataclasses import replace
from typing import NamedTuple

from engine.protocol import Delta, Token
from hooks.api import terminate
from hooks.pipeline.fragments import Fragment
from hooks.pipeline.stage import Ending
from hooks.pipeline.stream import Stream

_Key = tuple[str, int | None, str | None]
"""A channel, and which tool call: its index and its name."""


class DiffersError(Exception):
    """The hooks release other text for the kept tokens than they did before the rewind."""


class LastRewind(NamedTuple):
    """The reason of an output's last rewind."""

    instead: terminate
    """The verdict that takes the rewind's place if the engine cannot continue differently."""
    stream: str | int
    """The stream's key, as in `Output.streams`."""
    place: int
    """The place of the hook that returned `rewind`."""


class Delivery:
    """One output's delivered texts and token ids, and how many of its tokens are decided."""

    def __init__(self) -> None:
        self.num_tokens = 0
        """Tokens that the guard was fed."""
        self.num_decided = 0
        """The position after the last token that is wholly decided."""
        self.num_kept = 0
        """Tokens that were kept by the last rewind."""
        self.last_rewind: LastRewind | None = None
        self._texts: dict[_Key, list[str]] = {}
        self._ids: list[int | None] = []
        self._due_texts: dict[_Key, str] = {}
        """The delivered text that the hooks have not released again since the rewind."""
        self._due_ids: list[int | None] = []

    @property
    def boundary(self) -> int:
        """The position after the last token that may have reached the client."""
        return max(self.num_decided, self.num_kept)

    @property
    def is_repeated(self) -> bool:
        """Whether the hooks have released again all that was delivered before the rewind."""
        return not (self._due_texts or self._due_ids)

    def feed(self, delta: Delta) -> bool:
        """Count a delta that the guard is fed. Returns whether all of it was known before the last rewind."""
        is_known = self.num_tokens < self.num_kept
        self.num_tokens = max(self.num_tokens, _end(delta.tokens))
        return is_known and self.num_tokens <= self.num_kept

    def depart(
        self, stream: Stream, fed: list[Fragment], released: list[Fragment], ends: Ending | None
    ) -> list[Fragment]:
        """The part of the `released` fragments that may leave: whole tokens, unless the output ends here."""
        undecided = None if isinstance(ends, terminate) else stream.first_undecided
        if stream.incomplete:
            released, stream.incomplete = stream.incomplete + released, []
        if undecided is None:
            self._decide(fed)
            return released
        for i, fragment in enumerate(released):
            if fragment.positions is not None and fragment.positions[1] > undecided:
                released, stream.incomplete = released[:i], released[i:]
                break
        self._decide(released)
        return released

    def begin_again(self, num_kept: int, why: LastRewind) -> None:
        """The output was rewound to `num_kept` tokens. The guard is fed from the first one again."""
        self.num_tokens = self.num_decided = 0
        self.num_kept, self.last_rewind = num_kept, why
        self._due_texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        self._texts = {key: [text] for key, text in self._due_texts.items()}
        self._due_ids = list(self._ids)

    def new(self, delta: Delta) -> Delta | None:
        """The part of the delta that the client does not have yet. It counts as delivered from now on. Raises
        `DiffersError`."""
        if self.is_repeated:
            self._add(delta, delta.text, delta.tokens)
            return delta
        key = _key_of(delta)
        is_known = key in self._due_texts
        due = self._due_texts.pop(key, "")
        length = min(len(due), len(delta.text))
        num_ids = min(len(self._due_ids), len(delta.tokens))
        ids = [token.id for token in delta.tokens[:num_ids]]
        if delta.text[:length] != due[:length] or ids != self._due_ids[:num_ids]:
            raise DiffersError
        if due[length:]:
            self._due_texts[key] = due[length:]
        del self._due_ids[:num_ids]
        text, tokens = delta.text[length:], delta.tokens[num_ids:]
        self._add(delta, text, tokens)
        if delta.finish_reason is not None and not self.is_repeated:
            raise DiffersError
        if is_known and not (text or tokens or delta.finish_reason):
            return None
        return replace(delta, text=text, tokens=tokens)

    def _add(self, delta: Delta, text: str, tokens: tuple[Token, ...]) -> None:
        if text or delta.tool_call is not None:
            self._texts.setdefault(_key_of(delta), []).append(text)
        self._ids += [token.id for token in tokens]

    def _decide(self, fragments: list[Fragment]) -> None:
        ends = [f.positions[1] for f in fragments if f.positions is not None]
        self.num_decided = max([self.num_decided, *ends])


def _key_of(delta: Delta) -> _Key:
    call = delta.tool_call
    return (delta.channel, None, None) if call is None else (delta.channel, call.index, call.name)


def _end(tokens: tuple[Token, ...]) -> int:
    return max((t.position + 1 for t in tokens if t.position is not None), default=0)
