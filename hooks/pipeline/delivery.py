"""What a client has of an output that may be taken back: what it got, and up to where all is decided.

Positions count the output's tokens (`Token.position`). What was delivered stays delivered, so an output goes
back to behind the last token that is wholly decided, no further. It then begins anew, with new streams, and
what the hooks release of the tokens that stand is what they released before, and is not delivered again.
"""

from dataclasses import replace

from engine.protocol import Delta, Token
from hooks.api import Terminate
from hooks.pipeline.release import Fragment
from hooks.pipeline.stage import Stream

_Key = tuple[str, int | None, str | None]
"""A channel, and which tool call: its index and its name."""


class DiffersError(Exception):
    """What hooks release of what stands is not what they released before."""


class Delivery:
    """Of one output. It keeps what was delivered."""

    def __init__(self) -> None:
        self.num_tokens = 0
        """That the guard was fed."""
        self.num_decided = 0
        """Up to the last that is wholly decided."""
        self.num_standing = 0
        """That stood when the output was last taken back."""
        self.reason = ""
        """Why it was."""
        self._texts: dict[_Key, list[str]] = {}
        self._ids: list[int | None] = []
        self._due_texts: dict[_Key, str] = {}
        """What is still to be said again."""
        self._due_ids: list[int | None] = []

    @property
    def boundary(self) -> int:
        """Where the tokens end of which something was delivered, or may have been."""
        return max(self.num_decided, self.num_standing)

    @property
    def is_repeated(self) -> bool:
        """Whether all was said again that had been delivered when the output was taken back."""
        return not (self._due_texts or self._due_ids)

    def feed(self, delta: Delta) -> bool:
        """The guard is fed more of the output. Whether that was all known when it was last taken back."""
        is_known = self.num_tokens < self.num_standing
        self.num_tokens = max(self.num_tokens, _end(delta.tokens))
        return is_known and self.num_tokens <= self.num_standing

    def pass_on(self, delta: Delta) -> None:
        """All that was fed is decided."""
        self.num_decided = max(self.num_decided, _end(delta.tokens))

    def depart(
        self, stream: Stream, fed: list[Fragment], released: list[Fragment], ends: object
    ) -> list[Fragment]:
        """What may leave of what all hooks have released: whole tokens, unless the output ends here."""
        undecided = None if isinstance(ends, Terminate) else stream.undecided
        if stream.parting:
            released, stream.parting = stream.parting + released, []
        if undecided is None:
            self._decide(fed)
            return released
        for i, fragment in enumerate(released):
            if fragment.positions is not None and fragment.positions[1] > undecided:
                released, stream.parting = released[:i], released[i:]
                break
        self._decide(released)
        return released

    def begin_again(self, num_standing: int, reason: str) -> None:
        """The output was taken back to so many tokens, and is going to be fed from the first one again."""
        self.num_tokens = self.num_decided = 0
        self.num_standing, self.reason = num_standing, reason
        self._due_texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        self._texts = {key: [text] for key, text in self._due_texts.items()}
        self._due_ids = list(self._ids)

    def new(self, delta: Delta) -> Delta | None:
        """What of it the client does not have yet, which it then has. Raises `DiffersError`."""
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
