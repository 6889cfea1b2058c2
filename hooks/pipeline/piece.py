"""The new text of a stream while the stream's hooks read it, one after another."""

from engine.protocol import Token
from hooks.pipeline.fragments import (
    Fragment,
    fragments_of,
    num_incomplete_of,
    restored_in,
    text_of,
    tokens_of,
)
from hooks.pipeline.release import Ledger


class Piece:
    """A text with its tokens, as the hooks so far have released it. Most pieces pass every hook untouched:
    then no fragments are made of them."""

    __slots__ = ("_ledger", "is_read", "left", "num_incomplete", "restored", "text", "tokens")

    def __init__(self, text: str, tokens: tuple[Token, ...], ledger: Ledger) -> None:
        """`ledger`: of the output. It does not have the tokens yet."""
        self.text = text
        self.tokens = tokens
        self.num_incomplete = 0
        """This and `restored`: see `Chunk`."""
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
        """The fragments that are left. They are made when they are first needed."""
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
        """Set text and tokens to those of the fragments, for the next hook."""
        assert self.left is not None
        self.is_read = True
        self.text, self.tokens = text_of(self.left), tokens_of(self.left)
        self.num_incomplete, self.restored = num_incomplete_of(self.left), restored_in(self.left)
