"""Text and its tokens between hooks (contract 3.6). Values only.

A stream's text travels as `Fragment`s. The tokens that complete a fragment's text share one `TokenGroup`.
They are released with the last character of their text, and only if every character was released unchanged. A
fragment may be cut in two. Both halves keep the group, so spoiling either half withholds the group's tokens,
however many hooks are between the halves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from engine.protocol import Token

Positions = tuple[int, int]
"""The position of the first of some tokens, and the position after the last (`Token.position`)."""


class TokenGroup:
    """Tokens that are released together or not at all."""

    __slots__ = (
        "alternatives",
        "delivered_text",
        "follows",
        "released",
        "rewritten",
        "shown",
        "spoiled",
        "tokens",
    )

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.shown = tokens
        """The tokens that a hook is shown with the text, textless ones before it included."""
        self.alternatives = True
        self.spoiled = False
        """A character of the tokens was rewritten or withheld. This never becomes False again."""
        self.released = False
        self.rewritten = False
        """The text was rewritten, and the tokens pass all the same (`rewritten_tokens: keep`)."""
        self.delivered_text = ""
        """The text that was released for the tokens."""
        self.follows: TokenGroup | None = None
        """The group whose fate these textless tokens share; None until that group comes."""

    @property
    def decided(self) -> bool:
        return self.spoiled or self.released if self.follows is None else self.follows.decided

    @property
    def is_incomplete(self) -> bool:
        """Whether the tokens end in bytes that never became text. No hook was shown those bytes."""
        try:
            b"".join([token.raw for token in self.tokens]).decode()
        except UnicodeDecodeError:
            return not any("\ufffd" in token.text for token in self.tokens)
        return False

    def delivered(self) -> tuple[Token, ...]:
        """The tokens as the client may have them."""
        if self.spoiled or (self.follows is not None and self.follows.spoiled):
            return ()
        tokens = self.tokens
        if self.rewritten and tokens:  # the last token takes all the text: the tokens' texts are the text
            tokens = tuple(token._replace(text="") for token in tokens)
            tokens = (*tokens[:-1], tokens[-1]._replace(text=self.delivered_text))
        if self.alternatives and (self.follows is None or self.follows.alternatives):
            return tokens
        return tuple(token._replace(top=()) for token in tokens) if have_alternatives(tokens) else tokens


@dataclass(slots=True, eq=False, repr=False)
class Fragment:
    """A part of a stream's text, and the tokens it belongs to. Immutable."""

    text: str
    group: TokenGroup | None = None
    """None: the text has no tokens of its own. A replacement has none."""
    is_first: bool = True
    """Whether it begins its group's text."""
    is_last: bool = True
    """Whether it ends its group's text. The group's tokens are released with this fragment."""
    replaced: Positions | None = None
    """The tokens that the text replaces, if it is a replacement."""
    is_restored: bool = False
    """Whether the text is a caller's value that came back (contract 3.18)."""

    def split(self, at: int) -> "tuple[Fragment, Fragment]":
        text, group, replaced, is_restored = self.text, self.group, self.replaced, self.is_restored
        head = Fragment(text[:at], group, self.is_first, False, replaced, is_restored)
        return head, Fragment(text[at:], group, False, self.is_last, replaced, is_restored)

    @property
    def num_tokens(self) -> int | None:
        """The number of tokens that the fragment completes; None: its text has no tokens."""
        if self.group is None or not self.group.tokens:
            return None
        return len(self.group.tokens) if self.is_last else 0

    @property
    def positions(self) -> Positions | None:
        """The positions of the tokens that the text belongs to or replaces. None: the engine gives none."""
        if self.replaced is not None or self.group is None:
            return self.replaced
        return positions_of(self.group.shown)


def positions_of(tokens: tuple[Token, ...]) -> Positions | None:
    if not tokens:
        return None
    first, last = tokens[0].position, tokens[-1].position
    if first is None or last is None:
        known = [token.position for token in tokens if token.position is not None]
        return (known[0], known[-1] + 1) if known else None
    return first, last + 1


def fragments_of(tokens: tuple[Token, ...], text: str) -> tuple[list[Fragment], TokenGroup | None]:
    """Cut a delta into fragments. A token without text joins the next token that has text (contract 2.4).

    Also returns the group of the textless tokens at the end, if there are any.
    """
    if text and len(tokens) == 1 and tokens[0].text == text:
        return [Fragment(text, TokenGroup(tokens))], None
    if not tokens:
        return [Fragment(text)] if text else [], None
    fragments: list[Fragment] = []
    waiting: list[Token] = []
    for token in tokens:
        waiting.append(token)
        if token.text:
            fragments.append(Fragment(token.text, TokenGroup(tuple(waiting))))
            waiting = []
    if "".join([fragment.text for fragment in fragments]) != text:
        # It is unknown which token has which text: all move together (contract 3.11).
        return [Fragment(text, TokenGroup(tokens) if tokens else None)], None
    return fragments, TokenGroup(tuple(waiting)) if waiting else None


def tokens_given_with(text: str, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens as a client may have them together with their text (contract 8.4).

    The last tokens keep their bytes if these, joined, are the text. Each token before them keeps its id and
    its logprob. Without an id it keeps nothing: it may be a special token, or one that an upstream made up.
    """
    data = text.encode()
    first, begin = len(tokens), len(data)
    while first and begin:
        first -= 1
        begin -= len(tokens[first].raw)
    if begin or b"".join([token.raw for token in tokens[first:]]) != data:
        first = len(tokens)
    return (*map(_without_bytes, tokens[:first]), *tokens[first:])


def _without_bytes(token: Token) -> Token:
    """Also without its alternatives: one of them is often the token itself."""
    if not token.raw:
        return token
    return token._replace(raw=b"", logprob=None if token.id is None else token.logprob, top=())


def text_of(fragments: list[Fragment]) -> str:
    return fragments[0].text if len(fragments) == 1 else "".join([fragment.text for fragment in fragments])


def restored_in(fragments: list[Fragment]) -> tuple[tuple[int, int], ...]:
    """The places of values that came back, in the fragments' text."""
    places: list[tuple[int, int]] = []
    position = 0
    for fragment in fragments:
        end = position + len(fragment.text)
        if fragment.is_restored and fragment.text:
            places.append((position, end))
        position = end
    return tuple(places)


def without_restored(fragments: Iterable[Fragment]) -> str:
    """The text, with an asterisk for each character of a value that came back. For decisions, which never
    hold such a value (contract 9.1)."""
    return "".join(["*" * len(f.text) if f.is_restored else f.text for f in fragments])


def tokens_of(fragments: list[Fragment]) -> tuple[Token, ...]:
    """The tokens that the fragments complete, without those that lost a character."""
    shown: list[tuple[Token, ...]] = []
    for fragment in fragments:
        group = fragment.group
        if group is not None and fragment.is_last and not group.spoiled:
            shown.append(group.shown)
    return shown[0] if len(shown) == 1 else tuple(chain.from_iterable(shown))


def num_incomplete_of(fragments: list[Fragment]) -> int:
    """The characters at the end whose token comes with later text."""
    group = fragments[-1].group if fragments else None
    if group is None or group.spoiled or fragments[-1].is_last:
        return 0
    return sum(len(fragment.text) for fragment in fragments if fragment.group is group)


def have_alternatives(tokens: tuple[Token, ...]) -> bool:
    for token in tokens:  # noqa: SIM110 - `any` would take three times as long
        if token.top:
            return True
    return False


def are_bytes_of(tokens: tuple[Token, ...], text: str) -> bool:
    """Whether the tokens' bytes joined are the text. True without tokens."""
    return not tokens or b"".join([token.raw for token in tokens]) == text.encode()


def are_aligned(tokens: tuple[Token, ...], text: str) -> bool:
    """Whether there is text, the tokens' texts joined are that text, and the last token has some of it."""
    if not tokens or not text:
        return text != ""
    if len(tokens) == 1:
        return tokens[0].text == text
    return tokens[-1].text != "" and "".join([token.text for token in tokens]) == text


def cut(fragments: list[Fragment], length: int) -> tuple[list[Fragment], list[Fragment]]:
    """Split after `length` characters. A fragment without text at the cut belongs to the first part."""
    position = 0
    for i, fragment in enumerate(fragments):
        end = position + len(fragment.text)
        if end > length:
            if at := length - position:
                head, tail = fragment.split(at)
                return [*fragments[:i], head], [tail, *fragments[i + 1 :]]
            return fragments[:i], fragments[i:]
        position = end
    return fragments, []


def cut_front(fragments: list[Fragment], length: int) -> list[Fragment]:
    """Remove the first `length` characters from `fragments`, and return them. Splits as `cut` does."""
    taken: list[Fragment] = []
    for fragment in fragments:
        size = len(fragment.text)
        if size > length:
            break
        length -= size
        taken.append(fragment)
    del fragments[: len(taken)]
    if length and fragments:
        fragment = fragments[0]
        text, group, is_restored = fragment.text, fragment.group, fragment.is_restored
        replaced, is_first, is_last = fragment.replaced, fragment.is_first, fragment.is_last
        taken.append(Fragment(text[:length], group, is_first, False, replaced, is_restored))
        fragments[0] = Fragment(text[length:], group, False, is_last, replaced, is_restored)
    return taken


def spoil(fragments: Iterable[Fragment]) -> None:
    for fragment in fragments:
        if fragment.group is not None:
            fragment.group.spoiled = True


def copies(fragments: Iterable[Fragment]) -> list[Fragment]:
    """Copies for a hook in shadow mode: its verdict is counted and has no effect (contract 3.10)."""
    return [
        Fragment(f.text, f.group and TokenGroup(f.group.shown), True, f.is_last, None, f.is_restored)
        for f in fragments
    ]


@dataclass(slots=True, eq=False, repr=False)
class HeldText:
    """The text that one hook holds of one stream: as fragments, and as chunks have it."""

    num_characters: int = 0
    texts: tuple[list[str], int] | None = None
    """The text as `Chunk` takes it: a list, and how many of its first texts are held. None: nothing is held.
    The list only grows or is replaced: earlier chunks continue to read their part of it."""
    fragments: list[Fragment] = field(default_factory=list)

    def copied(self) -> "HeldText":
        return HeldText(self.num_characters, self.texts, copies(self.fragments))

    def replace(self, fragments: Sequence[Fragment]) -> None:
        """Hold just these fragments."""
        texts = [fragment.text for fragment in fragments]
        self.fragments = [*fragments]
        self.num_characters = sum(map(len, texts))
        self.texts = (texts, len(texts)) if texts else None

    def hold_back(self, num_held: int, new: str, fragments: list[Fragment]) -> list[Fragment]:
        """Add `fragments`, whose text is `new`, and hold the last `num_held` of the pending characters.
        Returns the rest, untouched: `fragments` itself if the rest is just these."""
        held = self.fragments
        num_released = self.num_characters + len(new) - num_held
        self.num_characters = num_held
        if not num_held:
            self.texts = None
            if not held:
                return fragments
            released = [*held, *fragments]
            held.clear()
            return released
        held += fragments
        if num_released:
            if num_held > len(new) and self.texts is not None:
                new = "".join(self.texts[0][: self.texts[1]]) + new
            self.texts = ([new[-num_held:]], 1)
            return cut_front(held, num_released)
        texts = [] if self.texts is None else self.texts[0]
        texts.append(new)
        self.texts = (texts, len(texts))
        return []
