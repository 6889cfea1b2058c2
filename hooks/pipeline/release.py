"""The release rule (contract 3): which text a verdict lets through, and when tokens may leave."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NoReturn

from engine.protocol import Token
from hooks.api import Chunk, Note, Restored, Span, Verdict, emit, hold, redact, rewind, suppress, terminate
from hooks.decisions.failure import BadVerdictError
from hooks.decisions.tally import JudgedTokens
from hooks.pipeline.fragments import (
    Fragment,
    Positions,
    TokenGroup,
    cut,
    have_alternatives,
    spoil,
    tokens_given_with,
)


@dataclass(slots=True, eq=False, repr=False)
class Outcome:
    """The result of a verdict: fragments to pass on, undecided fragments, and a verdict that ends things."""

    action: str
    """Counted as `rewrite`, `suppress`, `terminate`, `rewind` or `redact`."""
    released: list[Fragment]
    held: list[Fragment] = field(default_factory=list)
    ends: terminate | rewind | None = None


def num_held_by(verdict: object, chunk: Chunk, length: int) -> int | None:
    """The number of last characters that `verdict` leaves undecided, if it releases the rest untouched.

    None: it does something else, so `decide` carries it out. `length`: of the chunk's pending text.
    Raises `BadVerdictError` for a verdict that does not fit the text (contract 3.8).
    """
    if isinstance(verdict, hold):
        n = verdict.n
        if type(n) is int and 0 <= n <= length and not chunk.is_final:
            return n
        if n is None:
            return length if not chunk.is_final else _no_hold()
        return _checked_held(n, length, chunk.is_final)
    if isinstance(verdict, emit):
        text = checked_text(verdict.text)
        return 0 if len(text) == length and text == chunk.pending else None
    if isinstance(verdict, Note):
        checked_text(verdict.reason)
        return 0
    if isinstance(verdict, redact) and not verdict.spans:
        return _checked_held(verdict.hold, length, chunk.is_final)
    return None


def decide(
    verdict: Verdict, pending: list[Fragment], length: int, *, is_final: bool, keep_tokens: bool = False
) -> Outcome:
    """Carry out `verdict`, which changes text, on `pending`, which has `length` characters.

    `keep_tokens`: the tokens of rewritten and redacted text pass, as TensorRT-LLM lets them. Raises
    `BadVerdictError` for a value that is not a verdict, and for a verdict that does not fit the text
    (contract 3.8).
    """
    if isinstance(verdict, suppress):
        _check_reason(verdict.reason)
        released, withheld = _cut_at_end(verdict, pending, length) if verdict.after else ([], pending)
        spoil(withheld)
        outcome = Outcome("suppress", released)
    elif isinstance(verdict, emit):
        outcome = Outcome("rewrite", _rewritten(pending, checked_text(verdict.text), keep_tokens))
    elif isinstance(verdict, redact):
        outcome = _redact(verdict, pending, length, is_final, keep_tokens)
    elif isinstance(verdict, terminate):
        outcome = _terminate(verdict, pending, length)
    elif isinstance(verdict, rewind):
        outcome = _rewind(verdict, pending, length)
    else:
        raise BadVerdictError(f"it returned {type(verdict).__name__}, which is not a verdict")
    if not verdict.alternatives:
        outcome.released = without_alternatives(outcome.released)
    return outcome


def without_alternatives(released: list[Fragment]) -> list[Fragment]:
    """Withhold the alternatives of the fragments' tokens. Returns a new list if any token has some."""
    groups = [fragment.group for fragment in released if fragment.group is not None]
    for group in groups:
        if have_alternatives(group.shown):
            break
    else:
        return released
    for group in groups:
        group.alternatives = False
    return [*released]


def _redact(
    verdict: redact, pending: list[Fragment], length: int, is_final: bool, keep_tokens: bool
) -> Outcome:
    settled = length - _checked_held(verdict.hold, length, is_final)
    released: list[Fragment] = []
    before: list[Fragment] = []
    position, rest = 0, pending
    for start, end, replacement, is_restored in _checked_spans(verdict.spans, settled):
        kept, rest = cut(rest, start - position)
        released += kept
        before = kept or before
        if end > start:
            withheld, rest = cut(rest, end - start)
            before = withheld
        else:
            withheld = _cut_through(before, rest) if replacement else []
        keeps = keep_tokens and not is_restored
        replaced = withheld or rest[:1] or before
        released += _rewritten(withheld, replacement, keeps, replaced, is_restored=is_restored)
        position = end
    kept, held = cut(rest, settled - position)
    return Outcome("redact", released + kept, held)


def _terminate(verdict: terminate, pending: list[Fragment], length: int) -> Outcome:
    text = None if verdict.text is None else checked_text(verdict.text)
    plain = replace(verdict, reason=checked_text(verdict.reason), text=text)
    released, withheld = _cut_at_end(verdict, pending, length)
    spoil(withheld)
    if text:
        released = [*released, Fragment(text)]
    return Outcome("terminate", released, ends=plain)


def _rewind(verdict: rewind, pending: list[Fragment], length: int) -> Outcome:
    """The withheld part stays undecided, as if it had never been generated."""
    ban = verdict.ban
    if ban is not None and not all(type(i) is int for i in ban):
        raise BadVerdictError("rewind(ban=) are token ids")
    text = None if verdict.text is None else checked_text(verdict.text)
    plain = rewind(checked_text(verdict.reason), ban=ban, text=text, scope=verdict.scope)
    released, withheld = _cut_at_end(verdict, pending, length)
    num_released = len(released)
    while num_released and not released[num_released - 1].text:
        num_released -= 1  # a textless token is the end: the model must not repeat it
    return Outcome("rewind", released[:num_released], released[num_released:] + withheld, ends=plain)


def _cut_at_end(
    verdict: suppress | terminate | rewind, pending: list[Fragment], length: int
) -> tuple[list[Fragment], list[Fragment]]:
    """The fragments that the verdict releases, with its spans replaced, and the others."""
    after = _checked_after(verdict, length)
    released, withheld = cut(pending, after)
    if verdict.spans:
        released = _redact(redact(verdict.spans), released, after, False, False).released
    return released, withheld


def _checked_after(verdict: suppress | terminate | rewind, length: int) -> int:
    if not isinstance(verdict, suppress) and verdict.scope not in ("request", "output"):
        raise BadVerdictError(f"{type(verdict).__name__}(scope=) is 'request' or 'output'")
    after = 0 if verdict.after is None else verdict.after
    if type(after) is not int or not 0 <= after <= length:
        raise BadVerdictError("after= is out of range")
    return after


def _cut_through(before: list[Fragment], after: list[Fragment]) -> list[Fragment]:
    """A textless fragment of the token in whose text the two meet, if they do. The token's other parts may be
    released already, or held by another hook."""
    parts = [f for f in before[-1:] if not f.is_last] or [f for f in after[:1] if not f.is_first]
    return [Fragment("", f.group, False, False, f.replaced) for f in parts]


def _rewritten(
    fragments: list[Fragment],
    text: str,
    keep_tokens: bool,
    replaced: list[Fragment] | None = None,
    *,
    is_restored: bool = False,
) -> list[Fragment]:
    """Replace the fragments' text by `text`. Their tokens are withheld; with `keep_tokens`, the last token
    takes all of `text`. Tokens without text at the end, such as the end of sequence, pass: none of their
    characters is changed, and they also pass if they come in a chunk of their own.

    `replaced`: the fragments whose positions an inserted text gets. `is_restored`: the text is a caller's
    value. A text that another hook writes in the place of such a value counts as one.
    """
    positions = _extent(replaced or fragments)
    is_restored = is_restored or any(fragment.is_restored for fragment in fragments)
    if not keep_tokens:
        num_changed = len(fragments)
        while num_changed and _is_textless(fragments[num_changed - 1]):
            num_changed -= 1
        spoil(fragments[:num_changed])
        put = [Fragment(text, replaced=positions, is_restored=is_restored)] if text else []
        return [*put, *fragments[num_changed:]]
    kept: list[Fragment] = []
    for fragment in fragments:
        if fragment.group is not None:
            fragment.group.rewritten = True
            kept.append(Fragment("", fragment.group, fragment.is_first, fragment.is_last, positions))
    if not kept:
        return [Fragment(text, replaced=positions, is_restored=is_restored)] if text else []
    last = kept.pop()
    return [*kept, Fragment(text, last.group, last.is_first, last.is_last, positions, is_restored)]


def _is_textless(fragment: Fragment) -> bool:
    """Whether the fragment is that of tokens without text, and not the empty part of a token with text."""
    return not fragment.text and fragment.is_first and fragment.is_last


def _extent(fragments: list[Fragment]) -> Positions | None:
    """The positions from the first token of the fragments to the last."""
    known = [positions for f in fragments if (positions := f.positions) is not None]
    if len(known) == 1:
        return known[0]
    return (min(p[0] for p in known), max(p[1] for p in known)) if known else None


def _checked_held(n: int, length: int, is_final: bool) -> int:
    if type(n) is not int or not 0 <= n <= length:
        raise BadVerdictError("held characters are out of range")
    return _no_hold() if n and is_final else n


def _no_hold() -> NoReturn:
    raise BadVerdictError("it held text on a final chunk")


def checked_text(text: object) -> str:
    """A hook's text as exactly a `str`. Another process may not know a subclass, such as an enumeration's.

    Raises `BadVerdictError` for anything else, and for half a surrogate pair, which cannot be sent.
    """
    if type(text) is str and text.isascii():
        return text
    if not isinstance(text, str):
        raise BadVerdictError("it gave a value that is not text")
    plain = str.__str__(text)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise BadVerdictError("it gave a text with half a surrogate pair") from error
    return plain


def _check_reason(reason: object = None) -> None:
    if reason is not None:
        checked_text(reason)


_place = itemgetter(slice(2))
"""A span's start and end."""


def _checked_spans(spans: Iterable[Span], length: int) -> list[tuple[int, int, str, bool]]:
    checked: list[tuple[int, int, str, bool]] = []
    position = 0
    for span in sorted(spans, key=_place):
        start, end, replacement, *reason = span
        if type(start) is not int or type(end) is not int or not position <= start <= end <= length:
            raise BadVerdictError("redact() spans overlap or are out of range")
        checked.append((start, end, checked_text(replacement), isinstance(span, Restored)))
        _check_reason(*reason)
        position = end
    return checked


class Ledger:
    """One output's token groups in the order generated, until they are decided (contract 2.4).

    Ids and logprobs leave in that order: a released group waits for an earlier undecided one, also if that is
    on another channel. Text never waits here.
    """

    __slots__ = ("_gives_bytes", "groups")

    def __init__(self, gives_bytes: bool = False) -> None:
        """`gives_bytes`: the client gets the tokens' bytes, so the bytes must be those of the text."""
        self._gives_bytes = gives_bytes
        self.groups: deque[TokenGroup] = deque()

    def enter(self, fragments: list[Fragment]) -> None:
        """Add whole fragments, as the engine gave them."""
        for fragment in fragments:
            if fragment.group is not None:
                if self._gives_bytes:
                    self._withhold_other_bytes(fragment.group, fragment.text)
                self.groups.append(fragment.group)

    def _withhold_other_bytes(self, group: TokenGroup, text: str) -> None:
        """Withhold the bytes of this group, and of those that waited for it, that are not the text's."""
        shown = tokens_given_with(text, group.shown)
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
        """Remove and return the decided tokens that wait for no earlier token."""
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


def leave_together(fragments: list[Fragment], ledger: Ledger) -> tuple[str, tuple[Token, ...]]:
    """The text of fragments that every hook released, and the tokens that leave with it."""
    text = ""
    for fragment in fragments:
        text += fragment.text
        group = fragment.group
        if group is not None:
            group.delivered_text += fragment.text
            if fragment.is_last:
                group.released = True
    return text, ledger.leave() if ledger.groups else ()


def leave_by_token(fragments: list[Fragment], ledger: Ledger) -> list[tuple[str, tuple[Token, ...]]]:
    """The same in several texts, for a client that gets the tokens' offsets. Each text ends where its tokens'
    texts end, so a token's offset is the length of the text that was delivered before it."""
    texts: list[tuple[str, tuple[Token, ...]]] = []
    text = ""
    tokens = [] if fragments else [*ledger.leave()]
    for fragment in fragments:
        group = fragment.group
        if tokens and not (fragment.is_last and group is not None and not group.spoiled):
            texts.append((text, tuple(tokens)))
            text, tokens = "", []
        released, left = leave_together([fragment], ledger)
        text += released
        tokens += left
    return [*texts, (text, tuple(tokens))]


def count_judged(
    judged: JudgedTokens,
    verdict: Verdict,
    released: list[Fragment],
    ends: terminate | rewind | None,
    is_final: bool,
) -> None:
    """Count the released tokens, and the judged ones among them (contract 3.17). Raises
    `BadVerdictError`."""
    if isinstance(verdict, suppress) and not verdict.after:
        return
    if isinstance(ends, terminate) and ends.text:
        released = released[:-1]  # the closing text is the hook's own
    unjudged = getattr(verdict, "unjudged", 0)
    try:
        judged.release([(one.text, one.num_tokens) for one in released], unjudged)
    except ValueError as error:
        raise BadVerdictError(str(error)) from error
    if is_final and ends is None and unjudged:
        raise BadVerdictError("it ended a stream that its judge has not judged to the end")
