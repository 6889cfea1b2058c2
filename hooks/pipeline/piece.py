"""The new text of a stream on its way through the hooks, and the tokens that may leave with it (contract
2.4)."""

from collections import deque

from engine.protocol import Token
from hooks.pipeline.fragments import (
    Fragment,
    TokenGroup,
    fragments_of,
    num_incomplete_of,
    restored_in,
    text_of,
    tokens_beside,
    tokens_of,
)


class Ledger:
    """One output's token groups in the order generated, until they are decided (contract 2.4).

    Ids and logprobs leave in that order: a released group waits for an earlier undecided one, also if that is
    on another channel. Text never waits here.
    """

    __slots__ = ("_tells_bytes", "groups")

    def __init__(self, tells_bytes: bool = False) -> None:
        """`tells_bytes`: the client gets the tokens' bytes, so the bytes must be those of the text."""
        self._tells_bytes = tells_bytes
        self.groups: deque[TokenGroup] = deque()

    def enter(self, fragments: list[Fragment]) -> None:
        """Take in whole fragments, as the engine gave them."""
        for fragment in fragments:
            if fragment.group is not None:
                if self._tells_bytes:
                    self._withhold_other_bytes(fragment.group, fragment.text)
                self.groups.append(fragment.group)

    def _withhold_other_bytes(self, group: TokenGroup, text: str) -> None:
        """Withhold bytes that are not those of the text, of this group and of those that waited for it."""
        shown = tokens_beside(group.shown, text)
        waited = [] if len(shown) == len(group.tokens) else [g for g in self.groups if g.follows is group]
        for one in (*waited, group):
            one.tokens, shown = shown[: len(one.tokens)], shown[len(one.tokens) :]

    def close(self) -> tuple[Token, ...]:
        """The output ended: undecided tokens are withheld, and the tokens that waited for them leave."""
        for group in self.groups:
            if not group.decided:
                group.spoiled = True
                group.follows = None
        return self.leave()

    def leave(self) -> tuple[Token, ...]:
        """Take out the decided tokens that wait for no earlier token."""
        groups = self.groups
        tokens: list[Token] = []
        while groups:
            group = groups[0]
            # `decided` and `delivered` of most groups, spelt out: almost every chunk has one that leaves.
            if group.follows is None and not (group.spoiled or group.rewritten):
                if not group.released:
                    break
                tokens += group.tokens if group.alternatives else group.delivered()
            elif group.decided:
                tokens += group.delivered()
            else:
                break
            groups.popleft()
        return tuple(tokens)


class Piece:
    """A text with its tokens. Most pieces pass every hook untouched: then no fragments are made of them."""

    __slots__ = ("_ledger", "is_read", "left", "num_incomplete", "restored", "text", "tokens")

    def __init__(self, text: str, tokens: tuple[Token, ...], ledger: Ledger) -> None:
        """`ledger`: of the output. It does not have the tokens yet."""
        self.text = text
        self.tokens = tokens
        self.num_incomplete = 0
        """As `Chunk` has it, like `restored`."""
        self.restored: tuple[tuple[int, int], ...] = ()
        self.left: list[Fragment] | None = None
        """The fragments that the hooks so far have released. None: the piece is untouched."""
        self._ledger = ledger
        self.is_read = True
        """Whether text and tokens are those of `left`."""

    @classmethod
    def of(cls, fragments: list[Fragment], ledger: Ledger) -> "Piece":
        """A piece whose fragments the ledger has."""
        made = cls("", (), ledger)
        made.become(fragments)
        return made

    @property
    def fragments(self) -> list[Fragment]:
        """Those that are left."""
        if self.left is None:
            self.left, _ = fragments_of(self.tokens, self.text)
            if self.tokens:
                self._ledger.enter(self.left)
        return self.left

    def become(self, fragments: list[Fragment]) -> None:
        """The hooks so far have released `fragments`."""
        if fragments is not self.left:
            self.left = fragments
            self.is_read = False

    def read(self) -> None:
        """Let text and tokens be those of the fragments, for the next hook."""
        assert self.left is not None
        self.is_read = True
        self.text, self.tokens = text_of(self.left), tokens_of(self.left)
        self.num_incomplete, self.restored = num_incomplete_of(self.left), restored_in(self.left)


def piece_of(fragments: list[Fragment], ledger: Ledger) -> tuple[str, tuple[Token, ...]]:
    """Turn fragments that every hook released into one text with its tokens."""
    text = ""
    for fragment in fragments:
        text += fragment.text
        group = fragment.group
        if group is not None:
            group.delivered_text += fragment.text
            if fragment.is_last:
                group.released = True
    return text, ledger.leave() if ledger.groups else ()


def pieces_of(fragments: list[Fragment], ledger: Ledger) -> list[tuple[str, tuple[Token, ...]]]:
    """As `piece_of`, for a client that gets the tokens' offsets.

    In each piece the tokens' texts end where the text ends. So a token's offset is the length of the text
    delivered before it.
    """
    pieces: list[tuple[str, tuple[Token, ...]]] = []
    text = ""
    tokens = [] if fragments else [*ledger.leave()]
    for fragment in fragments:
        group = fragment.group
        if tokens and not (fragment.is_last and group is not None and not group.spoiled):
            pieces.append((text, tuple(tokens)))
            text, tokens = "", []
        released, left = piece_of([fragment], ledger)
        text += released
        tokens += left
    return [*pieces, (text, tuple(tokens))]
