"""The release rule: which text and which tokens a verdict lets through (contract 3). No I/O, no hooks called.

A stream's text travels as `Fragment`s. The tokens that complete a fragment's text share one `TokenGroup`, and
share its fate: they are released with the last character of their text, and only if every one of its
characters was released as it was (contract 3.6). A fragment may be cut in two; both halves keep the group,
so that spoiling either withholds its tokens, however many hooks stand between the two.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from engine.protocol import Token
from hooks.api import Emit, Hold, Redact, Rewind, Span, Suppress, Terminate, Verdict

Positions = tuple[int, int]
"""Of the first of some tokens, and behind the last (`Token.position`)."""


class TokenGroup:
    """Tokens that are released together or not at all."""

    __slots__ = ("alternatives", "follows", "given", "released", "rewritten", "shown", "spoiled", "tokens")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.shown = tokens
        """What a hook is shown with the text: also the textless tokens that came before it, by themselves."""
        self.alternatives = True
        self.spoiled = False
        """A character of theirs was rewritten or withheld. Never taken back."""
        self.released = False
        self.rewritten = False
        """Its text is another, and the tokens pass all the same."""
        self.given = ""
        """The text that was released for them."""
        self.follows: TokenGroup | None = None
        """The group whose fate these textless tokens share; None before it has come."""

    @property
    def decided(self) -> bool:
        if self.follows is not None:
            return self.follows.decided
        return self.spoiled or self.released

    @property
    def is_incomplete(self) -> bool:
        """Whether the tokens end in bytes that never became text, which no hook was shown."""
        try:
            b"".join([token.raw for token in self.tokens]).decode()
        except UnicodeDecodeError:
            return not any("\ufffd" in token.text for token in self.tokens)
        return False

    def delivered(self) -> tuple[Token, ...]:
        if self.spoiled or (self.follows is not None and self.follows.spoiled):
            return ()
        tokens = self.tokens
        if self.rewritten:  # one piece, so that the tokens' texts are still the text released
            tokens = tuple(token._replace(text="") for token in tokens)
            tokens = (*tokens[:-1], tokens[-1]._replace(text=self.given))
        if self.alternatives and (self.follows is None or self.follows.alternatives):
            return tokens
        return tuple(token._replace(top=()) for token in tokens)


class Fragment:
    """A piece of text and the tokens it belongs to. Immutable."""

    __slots__ = ("group", "is_first", "is_last", "replaced", "text")

    def __init__(
        self,
        text: str,
        group: TokenGroup | None = None,
        is_first: bool = True,
        is_last: bool = True,
        replaced: Positions | None = None,
    ) -> None:
        self.text = text
        self.group = group
        """None: text without tokens of its own, as a replacement is."""
        self.is_first = is_first
        """Begins its group's text."""
        self.is_last = is_last
        """Ends its group's text: the group's tokens go with this fragment."""
        self.replaced = replaced
        """The tokens that the text stands in place of, if it is another than theirs."""

    @property
    def positions(self) -> Positions | None:
        """Of the output's tokens that the text stands for; None where they are not told."""
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
    """Cut a delta into fragments: a token without text joins the next one that has some (contract 2.4).

    Also returns the group of those that are left without text behind them.
    """
    if len(tokens) == 1 and tokens[0].text == text and text:
        return [Fragment(text, TokenGroup(tokens))], None
    fragments: list[Fragment] = []
    waiting: list[Token] = []
    for token in tokens:
        waiting.append(token)
        if token.text:
            fragments.append(Fragment(token.text, TokenGroup(tuple(waiting))))
            waiting = []
    if "".join([fragment.text for fragment in fragments]) != text:
        # The tokens do not say which of them the text is of: all move with it, as one piece (contract 3.11).
        return [Fragment(text, TokenGroup(tokens) if tokens else None)], None
    return fragments, TokenGroup(tuple(waiting)) if waiting else None


def text_of(fragments: list[Fragment]) -> str:
    return fragments[0].text if len(fragments) == 1 else "".join([fragment.text for fragment in fragments])


def tokens_of(fragments: list[Fragment]) -> tuple[Token, ...]:
    """The tokens that the fragments complete, unless something of theirs is gone."""
    return tuple(
        token
        for fragment in fragments
        if fragment.group and fragment.is_last and not fragment.group.spoiled
        for token in fragment.group.shown
    )


def are_aligned(tokens: tuple[Token, ...], text: str) -> bool:
    """Whether there is a text, and the tokens' texts joined are it, the last ending it."""
    if len(tokens) == 1:
        return tokens[0].text == text != ""
    if not tokens or not text:
        return text != ""
    return tokens[-1].text != "" and "".join([token.text for token in tokens]) == text


def cut(fragments: list[Fragment], length: int) -> tuple[list[Fragment], list[Fragment]]:
    """The first `length` characters, and the rest. A fragment without text at the cut goes first."""
    position = 0
    for i, fragment in enumerate(fragments):
        end = position + len(fragment.text)
        if end > length:
            if at := length - position:
                group, replaced = fragment.group, fragment.replaced
                head = Fragment(fragment.text[:at], group, fragment.is_first, False, replaced)
                tail = Fragment(fragment.text[at:], group, False, fragment.is_last, replaced)
                return [*fragments[:i], head], [tail, *fragments[i + 1 :]]
            return fragments[:i], fragments[i:]
        position = end
    return fragments, []


def spoil(fragments: Iterable[Fragment]) -> None:
    for fragment in fragments:
        if fragment.group is not None:
            fragment.group.spoiled = True


class BadVerdictError(ValueError):
    """Not a verdict that can be carried out (contract 3.8)."""


class Outcome:
    """What a verdict comes to: fragments to pass on, fragments kept undecided, and whether it ends there."""

    __slots__ = ("action", "ends", "held", "released")

    def __init__(
        self,
        action: str,
        released: list[Fragment],
        held: list[Fragment] | None = None,
        ends: Terminate | Rewind | None = None,
    ) -> None:
        self.action = action
        """For counting: `emit`, `rewrite`, `suppress`, `terminate`, `rewind`, `hold` or `redact`."""
        self.released = released
        self.held = held or []
        self.ends = ends


def decide(
    verdict: Verdict, pending: list[Fragment], length: int, *, is_final: bool, keep_tokens: bool = False
) -> Outcome:
    """Carry out `verdict` on `pending`, `length` characters in all.

    `keep_tokens`: let rewritten and redacted text's tokens pass, as TensorRT-LLM does.

    An untouched release passes `pending` itself on, the same list; holding everything keeps it likewise.
    Raises `BadVerdictError` for anything that is no verdict, or one that does not fit (contract 3.8).
    """
    if isinstance(verdict, Suppress):
        _check_reason(verdict.reason)
        spoil(pending)
        return Outcome("suppress", [])
    if isinstance(verdict, Emit):
        outcome = _emit(verdict, pending, length, keep_tokens)
    elif isinstance(verdict, Hold):
        outcome = _hold(verdict, pending, length, is_final)
    elif isinstance(verdict, Redact):
        outcome = _redact(verdict, pending, length, is_final, keep_tokens)
    elif isinstance(verdict, Terminate):
        outcome = _terminate(verdict, pending, length)
    elif isinstance(verdict, Rewind):
        outcome = _rewind(verdict, pending, length)
    else:
        raise BadVerdictError(f"it returned {type(verdict).__name__}, which is no verdict")
    if not verdict.alternatives:
        outcome.released = [*outcome.released]  # another list: it is not untouched
        for fragment in outcome.released:
            if fragment.group is not None:
                fragment.group.alternatives = False
    return outcome


def _emit(verdict: Emit, pending: list[Fragment], length: int, keep_tokens: bool) -> Outcome:
    text = checked_text(verdict.text)
    if len(text) == length and text == "".join([fragment.text for fragment in pending]):
        return Outcome("emit", pending)
    return Outcome("rewrite", _rewritten(pending, text, keep_tokens))


def _hold(verdict: Hold, pending: list[Fragment], length: int, is_final: bool) -> Outcome:
    n = length if verdict.n is None else verdict.n
    _check_held(n, length)
    if is_final and (n or verdict.n is None):
        raise BadVerdictError("it held text on a final chunk")
    if n == length:
        return Outcome("hold", [], pending)
    return Outcome("hold", *cut(pending, length - n))


def _redact(
    verdict: Redact, pending: list[Fragment], length: int, is_final: bool, keep_tokens: bool
) -> Outcome:
    _check_held(verdict.hold, length)
    if is_final and verdict.hold:
        raise BadVerdictError("it held text on a final chunk")
    released: list[Fragment] = []
    before: list[Fragment] = []
    position, rest = 0, pending
    for start, end, replacement in _checked_spans(verdict.spans, length - verdict.hold):
        kept, rest = cut(rest, start - position)
        released += kept
        before = kept or before
        if end > start:
            withheld, rest = cut(rest, end - start)
            before = withheld
        else:
            withheld = _cut_through(before, rest) if replacement else []
        released += _rewritten(withheld, replacement, keep_tokens, replaced=withheld or rest[:1] or before)
        position = end
    kept, held = cut(rest, length - verdict.hold - position)
    return Outcome("redact" if verdict.spans else "emit", released + kept, held)


def _terminate(verdict: Terminate, pending: list[Fragment], length: int) -> Outcome:
    after = _checked_after(verdict, length)
    if verdict.scope not in ("request", "output"):
        raise BadVerdictError("terminate(scope=) is 'request' or 'output'")
    text = None if verdict.text is None else checked_text(verdict.text)
    plain = replace(verdict, reason=checked_text(verdict.reason), text=text)
    released, withheld = cut(pending, after)
    spoil(withheld)
    if text:
        released = [*released, Fragment(text)]
    return Outcome("terminate", released, ends=plain)


def _rewind(verdict: Rewind, pending: list[Fragment], length: int) -> Outcome:
    """What is withheld stays undecided: it is as though it had never been."""
    ban = verdict.ban
    if ban is not None and not all(type(i) is int for i in ban):
        raise BadVerdictError("rewind(ban=) are token ids")
    plain = Rewind(checked_text(verdict.reason), ban, scope=verdict.scope)
    released, withheld = cut(pending, _checked_after(verdict, length))
    num_released = len(released)
    while num_released and not released[num_released - 1].text:
        num_released -= 1  # what has no text stands for the end, and is what must not come
    return Outcome("rewind", released[:num_released], released[num_released:] + withheld, ends=plain)


def _checked_after(verdict: Terminate | Rewind, length: int) -> int:
    after = 0 if verdict.after is None else verdict.after
    if type(after) is not int or not 0 <= after <= length:
        raise BadVerdictError("after= is out of range")
    return after


def _cut_through(before: list[Fragment], after: list[Fragment]) -> list[Fragment]:
    """Where they meet in the middle of a token's text, of which a part may be elsewhere by now: a fragment
    without text of that token."""
    parts = [f for f in before[-1:] if not f.is_last] or [f for f in after[:1] if not f.is_first]
    return [Fragment("", f.group, False, False, f.replaced) for f in parts]


def _rewritten(
    fragments: list[Fragment], text: str, keep_tokens: bool, replaced: list[Fragment] | None = None
) -> list[Fragment]:
    """`text` in place of the fragments', without their tokens; or with them, as their last one's text.

    `replaced`: what it stands for, if it is inserted and replaces nothing.
    """
    positions = _extent(replaced or fragments)
    if not keep_tokens:
        spoil(fragments)
        return [Fragment(text, replaced=positions)] if text else []
    kept: list[Fragment] = []
    for fragment in fragments:
        if fragment.group is not None:
            fragment.group.rewritten = True
            kept.append(Fragment("", fragment.group, fragment.is_first, fragment.is_last, positions))
    if not kept:
        return [Fragment(text, replaced=positions)] if text else []
    last = kept.pop()
    return [*kept, Fragment(text, last.group, last.is_first, last.is_last, positions)]


def _extent(fragments: list[Fragment]) -> Positions | None:
    """From the first of the tokens that they stand for to the last."""
    known = [positions for f in fragments if (positions := f.positions) is not None]
    return (min(p[0] for p in known), max(p[1] for p in known)) if known else None


def _check_held(n: int, length: int) -> None:
    if type(n) is not int or not 0 <= n <= length:
        raise BadVerdictError("held characters out of range")


def checked_text(text: object) -> str:
    """A text of a hook's own, as exactly a `str`: what is made of one, an enumeration's member say, is the
    hook's, and another process does not know it. Half a surrogate pair is no character and cannot be sent."""
    if not isinstance(text, str):
        raise BadVerdictError("it gave something that is no text")
    plain = str.__str__(text)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise BadVerdictError("it gave a text with half a surrogate pair") from error
    return plain


def _check_reason(reason: object = None) -> None:
    if reason is not None:
        checked_text(reason)


def _checked_spans(spans: tuple[Span, ...], length: int) -> list[tuple[int, int, str]]:
    checked: list[tuple[int, int, str]] = []
    position = 0
    for start, end, replacement, *reason in sorted(spans, key=lambda span: span[:2]):
        if type(start) is not int or type(end) is not int or not position <= start <= end <= length:
            raise BadVerdictError("redact() spans overlap or are out of range")
        checked.append((start, end, checked_text(replacement)))
        _check_reason(*reason)
        position = end
    return checked


class Ledger:
    """A choice's token groups in the order generated, until they are decided (contract 2.4).

    Ids and logprobs leave in that order: one that is released waits for an earlier one that is undecided,
    on whichever channel. Text never waits here.
    """

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: deque[TokenGroup] = deque()

    def enter(self, groups: Iterable[TokenGroup | None]) -> None:
        self.groups.extend(group for group in groups if group is not None)

    def close(self) -> list[Token]:
        """The output ended: what is still undecided is withheld, and what waited for it leaves."""
        for group in self.groups:
            if not group.decided:
                group.spoiled = True
                group.follows = None
        return self.leave()

    def leave(self) -> list[Token]:
        """The tokens that nothing earlier keeps waiting any more."""
        tokens: list[Token] = []
        while self.groups and self.groups[0].decided:
            tokens += self.groups.popleft().delivered()
        return tokens


def pieces_of(fragments: list[Fragment], ledger: Ledger) -> list[tuple[str, tuple[Token, ...]]]:
    """What a client may get of fragments that every hook released: texts, each with its tokens.

    In each, the tokens' texts end where its text ends, so that a token's offset is known from the text
    delivered before it.
    """
    pieces: list[tuple[str, tuple[Token, ...]]] = []
    text: list[str] = []
    tokens: list[Token] = []

    def flush() -> None:
        if text or tokens:
            pieces.append(("".join(text), tuple(tokens)))
            text.clear()
            tokens.clear()

    for fragment in fragments:
        complete = fragment.is_last and fragment.group is not None and not fragment.group.spoiled
        if tokens and not complete:
            flush()
        if fragment.text:
            text.append(fragment.text)
        if fragment.group is not None:
            fragment.group.given += fragment.text
            fragment.group.released = fragment.group.released or fragment.is_last
        tokens += ledger.leave()
    tokens += ledger.leave()
    flush()
    return pieces
