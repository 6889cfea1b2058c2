"""The release rule: which text and which tokens a verdict lets through (contract 3). No I/O, no hooks called.

A stream's text travels as `Fragment`s. The tokens that complete a fragment's text share one `TokenGroup`, and
share its fate: they are released with the last character of their text, and only if every one of its
characters was released as it was (contract 3.6). A fragment may be cut in two; both halves keep the group,
so that spoiling either withholds its tokens, however many hooks stand between the two.
"""

from collections import deque
from collections.abc import Iterable

from engine.protocol import Token
from hooks.api import Emit, Hold, Redact, Span, Suppress, Terminate, Verdict


class TokenGroup:
    """Tokens that are released together or not at all."""

    __slots__ = ("alternatives", "follows", "released", "shown", "spoiled", "tokens")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.shown = tokens
        """What a hook is shown with the text: also the textless tokens that came before it, by themselves."""
        self.alternatives = True
        self.spoiled = False
        """A character of theirs was rewritten or withheld. Never taken back."""
        self.released = False
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
        if self.alternatives:
            return self.tokens
        return tuple(token._replace(top=()) for token in self.tokens)


class Fragment:
    """A piece of text and the tokens it belongs to. Immutable."""

    __slots__ = ("group", "is_first", "is_last", "text")

    def __init__(
        self, text: str, group: TokenGroup | None = None, is_first: bool = True, is_last: bool = True
    ) -> None:
        self.text = text
        self.group = group
        """None: text without tokens of its own, as a replacement is."""
        self.is_first = is_first
        """Begins its group's text."""
        self.is_last = is_last
        """Ends its group's text: the group's tokens go with this fragment."""


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
                head = Fragment(fragment.text[:at], fragment.group, fragment.is_first, is_last=False)
                tail = Fragment(fragment.text[at:], fragment.group, is_first=False, is_last=fragment.is_last)
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

    __slots__ = ("action", "held", "released", "terminate")

    def __init__(
        self,
        action: str,
        released: list[Fragment],
        held: list[Fragment] | None = None,
        terminate: Terminate | None = None,
    ) -> None:
        self.action = action
        """For counting: `emit`, `rewrite`, `suppress`, `terminate`, `hold` or `redact`."""
        self.released = released
        self.held = held or []
        self.terminate = terminate


def decide(
    verdict: Verdict, pending: list[Fragment], length: int, *, is_final: bool, keep_tokens: bool = False
) -> Outcome:
    """Carry out `verdict` on `pending`, `length` characters in all.

    `keep_tokens`: let rewritten and redacted text's tokens pass, as TensorRT-LLM does.

    An untouched release passes `pending` itself on, the same list; holding everything keeps it likewise.
    Raises `BadVerdictError` for anything that is no verdict, or one that does not fit (contract 3.8).
    """
    if isinstance(verdict, Emit):
        return _emit(verdict, pending, length, keep_tokens)
    if isinstance(verdict, Suppress):
        spoil(pending)
        return Outcome("suppress", [])
    if isinstance(verdict, Hold):
        return _hold(verdict, pending, length, is_final)
    if isinstance(verdict, Redact):
        return _redact(verdict, pending, length, is_final, keep_tokens)
    if isinstance(verdict, Terminate):
        return _terminate(verdict, pending, length)
    raise BadVerdictError(f"it returned {type(verdict).__name__}, which is no verdict")


def _emit(verdict: Emit, pending: list[Fragment], length: int, keep_tokens: bool) -> Outcome:
    text = verdict.text
    if not isinstance(text, str):
        raise BadVerdictError("emit() takes a text")
    if len(text) == length and text == "".join([fragment.text for fragment in pending]):
        if verdict.alternatives:
            return Outcome("emit", pending)
        for fragment in pending:
            if fragment.group is not None:
                fragment.group.alternatives = False
        return Outcome("emit", list(pending))
    _check_text(text)
    tokens = _without_text(pending, keep_tokens)
    return Outcome("rewrite", [Fragment(text), *tokens] if text else tokens)


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
        tokens: list[Fragment] = []
        if start == end and replacement and not keep_tokens:
            # Inserted in the middle of a token's text, of which a part may be elsewhere by now.
            spoil(fragment for fragment in before[-1:] if not fragment.is_last)
            spoil(fragment for fragment in rest[:1] if not fragment.is_first)
        if end > start:
            withheld, rest = cut(rest, end - start)
            tokens = _without_text(withheld, keep_tokens)
            before = withheld
        if replacement:
            released.append(Fragment(replacement))
        released += tokens
        position = end
    kept, held = cut(rest, length - verdict.hold - position)
    return Outcome("redact" if verdict.spans else "emit", released + kept, held)


def _terminate(verdict: Terminate, pending: list[Fragment], length: int) -> Outcome:
    after = 0 if verdict.after is None else verdict.after
    if not isinstance(verdict.reason, str):
        raise BadVerdictError("terminate() takes a reason, a text")
    if type(after) is not int or not 0 <= after <= length:
        raise BadVerdictError("terminate(after=) is out of range")
    if verdict.text is not None:
        _check_text(verdict.text)
    if verdict.scope not in ("request", "output"):
        raise BadVerdictError("terminate(scope=) is 'request' or 'output'")
    released, withheld = cut(pending, after)
    spoil(withheld)
    if verdict.text:
        released = [*released, Fragment(verdict.text)]
    return Outcome("terminate", released, terminate=verdict)


def _without_text(rewritten: list[Fragment], keep_tokens: bool) -> list[Fragment]:
    """What is left of fragments whose text was rewritten: their tokens, if those are kept, or nothing."""
    if keep_tokens:
        return [Fragment("", f.group, f.is_first, f.is_last) for f in rewritten if f.group is not None]
    spoil(rewritten)
    return []


def _check_held(n: int, length: int) -> None:
    if type(n) is not int or not 0 <= n <= length:
        raise BadVerdictError("held characters out of range")


def _check_text(text: object) -> None:
    """A text of a hook's own must be one that can be sent: half a surrogate pair is no character."""
    if not isinstance(text, str):
        raise BadVerdictError("it gave something that is no text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadVerdictError("it gave a text with half a surrogate pair") from error


def _checked_spans(spans: tuple[Span, ...], length: int) -> list[Span]:
    ordered = sorted(spans, key=lambda span: span[:2])
    position = 0
    for start, end, replacement in ordered:
        if type(start) is not int or type(end) is not int or not position <= start <= end <= length:
            raise BadVerdictError("redact() spans overlap or are out of range")
        _check_text(replacement)
        position = end
    return ordered


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
        if fragment.group is not None and fragment.is_last:
            fragment.group.released = True
        tokens += ledger.leave()
    tokens += ledger.leave()
    flush()
    return pieces
