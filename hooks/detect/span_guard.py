"""A guard made from a detector. The detector sees only text; this module handles streams.

The released text never depends on where the stream was cut. A detector decides a place only when more text
cannot change the decision, and reads only a bounded text around the place.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, Unpack

from hooks import (
    Chunk,
    GenerationRequest,
    PromptText,
    Span,
    Verdict,
    emit,
    hold,
    prompt_texts,
    redact,
    refuse,
    with_prompt_texts,
)
from hooks.api.chunk import CALLER_VALUES
from hooks.detect.acting_guard import WITHHELD, ActingGuard, Options, PromptReply, Sources, spliced
from hooks.detect.detector import Detector, Match, Worded, order, screen_of
from hooks.detect.excerpt import Excerpt
from hooks.detect.found_again import FoundAgain
from hooks.detect.known_texts import KnownTexts
from hooks.detect.lead import MAX_LEAD, Lead
from hooks.detect.placeholders import LONGEST, CallerValues, Placeholders, operator_key
from hooks.detect.readings import Reader
from hooks.detect.refused_before import RefusedBefore
from hooks.detect.restoring import MARK, expanded, masked
from hooks.detect.unmasked import MOST_IN_MATCH, Unmasked
from hooks.json.editing import asks_for_json
from hooks.loading.screen import Screen, Screened
from hooks.prompts.lead import leads_of

_PLACEHOLDERS = "placeholders"
_PART = 4099
"""Characters of a prompt that are searched at a time. A longer prompt makes no search slower. The number is
prime, so that few parts of a text that repeats itself end within an escape or at a line break."""
_LEADS = 32
"""Most leads whose search is kept for other outputs of the same prompt."""


class SpanOptions(Options, total=False):
    """The arguments that all guards of a detector take: see `SpanGuard`."""

    restore: bool
    known: Sources | None
    calls: Literal["suppress"] | None


class SpanGuard(ActingGuard, Screened):
    """Acts on a detector's matches, and holds only the text that the detector leaves undecided.

    `restore`: with `prompt: redact`, the model is shown a placeholder in the place of a match. Where it
    writes the placeholder, the client gets the match's text back (contract 9). A match in an answer passes if
    the caller has sent it.

    `known`: a match in an answer passes if the same text is in the prompt, in a text of these sources. None:
    it does not.

    `calls`: with `suppress`, a tool call with a match is withheld whole, whatever `action` is, and `text` is
    at the end of the answer.
    """

    copyable = True
    refuses_new = True
    reads_text = False

    def __init__(
        self,
        detector: Detector,
        *,
        restore: bool = False,
        known: Sources | None = None,
        calls: Literal["suppress"] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Raises `ValueError` for `restore` and `known` with options that they do not fit."""
        self._closing = None if calls is None else options.get("text")
        if calls is not None and options.get("prompt") not in ("refuse", "refuse_new"):
            options["text"] = (
                None if options.get("action", "redact") in ("redact", "suppress") else self._closing
            )
        super().__init__(detector.reach, detector.longest, **options)
        if self.max_hold is not None:
            self.max_hold += MOST_IN_MATCH * LONGEST
        self._withholds_calls = self._withholds_calls or calls == "suppress"
        if restore:
            if options.get("prompt") != "redact" or options.get("action") == "suspect":
                raise ValueError("restore: it is for prompt redact, and not for action suspect")
            if options.get("template") is not None:
                raise ValueError("restore: the placeholders take the place of template")
            operator_key()
            if known is not None:
                raise ValueError("known: with restore, the caller's values pass already")
        self._restores = restore
        self._refused = RefusedBefore()
        self._known = None if known is None else frozenset(known)
        self.detector = detector
        self._worded = detector if isinstance(detector, Worded) else None
        self._reader = detector if isinstance(detector, Reader) else None
        self._chat_leads: tuple[GenerationRequest | None, tuple[str, ...]] = (None, ())
        self._searched = lru_cache(_LEADS)(partial(Lead.of, detector))

    def __call__(self, chunk: Chunk) -> Verdict:
        excerpt: Excerpt | None = chunk.state.get("excerpt")
        is_final = chunk.is_final
        if excerpt is None or not excerpt.is_plain or chunk.restored_diff:
            return self._vetted(chunk)
        if is_final and (chunk.aborted or self._closing or self._withholds_at_cut(chunk)):
            return self._vetted(chunk)
        known, piece = excerpt.text, chunk.text_diff
        text = known + (piece if piece.isascii() else self._plain(piece))
        if self._may_come_back(excerpt, text, len(known)):
            return self._vetted(chunk)
        if (reader := self._reader) is not None:
            matches, undecided = reader.follow(excerpt, text, is_final)
        else:
            matches, undecided = self.detector.scan(text, excerpt.start, is_final)
        has_again = bool(matches) or excerpt.again is not None
        again = self._found_again(excerpt, text, matches, is_final) if has_again else ()
        if matches or again:
            return self._act(
                chunk, excerpt, text, *excerpt.settled(text, matches, undecided, is_final, again)
            )
        undecided = excerpt.open_from(undecided)
        if is_final:
            return emit(chunk.pending, alternatives=excerpt.keeps_alternatives)
        begin, held = excerpt.pending, len(text) - undecided
        excerpt.go_on(text, undecided, self._reach)
        if held:
            return hold(held) if excerpt.keeps_alternatives else hold(held, alternatives=False)
        pending = piece if begin == len(known) else chunk.pending
        return emit(pending, alternatives=excerpt.keeps_alternatives)

    @cached_property
    def screen(self) -> Screen | None:
        """None for a subclass that has its own `__call__`."""
        return screen_of(self.detector) if type(self).__call__ is SpanGuard.__call__ else None

    def may_skip(self, state: dict[Any, Any]) -> bool:
        excerpt: Excerpt | None = state.get("excerpt")
        return (
            excerpt is not None
            and excerpt.is_plain
            and excerpt.again is None
            and (excerpt.view is None or excerpt.view.is_even)
            and excerpt.values is None
            and excerpt.keeps_alternatives
        )

    def skip(self, state: dict[Any, Any], before: str) -> None:
        excerpt: Excerpt = state["excerpt"]
        width = 0 if self.screen is None else self.screen.width
        before = self._plain(before[len(before) - min(width, len(before)) :])
        excerpt.resume(before, has_tokens=self._reader is not None and self._reader.has_even(before))

    def _vetted(self, chunk: Chunk) -> Verdict:
        """The verdict on any chunk; `__call__` has a shorter way for most."""
        has_text = bool(chunk.pending) or "excerpt" in chunk.state
        verdict = self._judged(chunk)
        why = chunk.request_state.get((WITHHELD, chunk.output_index))
        if why is None or self._closing is None or chunk.channel != "content" or not chunk.is_final:
            return verdict
        return verdict if chunk.aborted else self._closed(chunk, verdict, why, "\n\n" if has_text else "")

    def _closed(self, chunk: Chunk, verdict: Verdict, why: str, gap: str) -> Verdict:
        """The verdict on the end of an answer, which says that a call was withheld (contract 2.14)."""
        end = len(chunk.pending)
        closing = (end, end, f"{gap}{self._closing}", why)
        if isinstance(verdict, redact):
            return replace(verdict, spans=(*verdict.spans, closing))
        return (
            redact([closing]) if isinstance(verdict, emit) and not asks_for_json(chunk.request) else verdict
        )

    def _judged(self, chunk: Chunk) -> Verdict:
        if self._passes(chunk):
            return emit(chunk.pending)
        name = self._own_name(chunk)
        if verdict := self._act_on_name(chunk, self.detector.scan(name)[0] if name else []):
            return verdict
        excerpt = self._excerpt(chunk)
        if chunk.is_final and self._withholds_at_cut(chunk):
            return self._act_at_cut(chunk, excerpt)
        text, matches, undecided = self._scan(excerpt, chunk.text_diff, chunk.is_final, chunk.restored_diff)
        return self._act(chunk, excerpt, text, matches, undecided)

    def _act_at_cut(self, chunk: Chunk, excerpt: Excerpt) -> Verdict:
        """The verdict where the client cut the stream: the beginning of a possible match is withheld. A match
        that is whole without more text counts as at any other end."""
        matches: list[Match] = []
        piece, restored, start = chunk.text_diff, chunk.restored_diff, -1
        while excerpt.start > start:
            start = excerpt.start
            excerpt.text, found, undecided = self._scan(excerpt, piece, False, restored, is_cut=True)
            piece, restored = "", ()
            matches += found
        text, whole, end = self._scan(excerpt, "", is_final=True)
        matches = [*dict.fromkeys((*matches, *whole))]  # a placeholder is found several times
        return self._act(chunk, excerpt, text, matches, end, withheld_from=undecided)

    def _begun(self, chunk: Chunk, *, is_json: bool) -> Excerpt:
        placeholders: Placeholders | None = chunk.request_state.get(_PLACEHOLDERS)
        if placeholders is None and self._known is not None:
            placeholders = chunk.request_state[_PLACEHOLDERS] = Placeholders(chunk.request.caller)
            placeholders.passing = KnownTexts(chunk.request, self._known, self._plain, self.detector.longest)
        known = chunk.caller_values
        leads = [self._searched(expanded(lead, known)) for lead in self._leads(chunk)]
        values = CallerValues(known) if known else None
        return Excerpt(is_json=is_json, leads=leads, placeholders=placeholders, values=values)

    def _leads(self, chunk: Chunk) -> tuple[str, ...]:
        """The forms of the lead. The outputs of a chat have the same, which are found once."""
        if not chunk.request.is_chat or chunk.channel not in ("content", "reasoning"):
            return leads_of(chunk.request, chunk.output_index, chunk.channel, MAX_LEAD)
        request, leads = self._chat_leads
        if request is not chunk.request:
            leads = leads_of(chunk.request, chunk.output_index, chunk.channel, MAX_LEAD)
            self._chat_leads = chunk.request, leads
        return leads

    @property
    def on_request(self) -> Callable[..., Any] | None:
        if self._prompt == "refuse_new":
            return self._refuse_new
        return self._mask_prompt if self._restores else super().on_request

    def _refuse_new(self, request: GenerationRequest) -> PromptReply:
        new = self._refused.new_texts(request)
        refused: list[tuple[PromptText, int, int]] = []

        def without_old(prompt: PromptText) -> str:
            spans = [*self._spans(prompt, self._prompt_template)]
            said = [(prompt, start, end) for start, end, *_ in spans if new.has(prompt, start, end)]
            refused.extend(said)
            return prompt.text if said else spliced(prompt.text, spans)

        shown = with_prompt_texts(request, without_old)
        if not refused:
            return shown
        new.refuse(refused)
        prompt, start, _ = refused[0]
        entity = next(put[0] for at, _, *put in self._spans(prompt, "{entity}") if at == start)
        return refuse(entity, self._text, place=prompt.place)

    def _redact_prompt(self, request: GenerationRequest) -> GenerationRequest:
        return with_prompt_texts(request, self._redacted)

    def _mask_prompt(self, request: GenerationRequest, state: dict[Any, Any]) -> GenerationRequest:
        placeholders = Placeholders(request.caller, (prompt.text for prompt in prompt_texts(request)))
        redacted = with_prompt_texts(request, partial(self._masked, placeholders))
        placeholders.passing = frozenset(map(self._plain, placeholders.values))
        state[_PLACEHOLDERS] = placeholders
        state[CALLER_VALUES] = placeholders.by_placeholder
        return redacted

    def _masked(self, placeholders: Placeholders, prompt: PromptText) -> str:
        spans = self._spans(prompt, MARK)
        return spliced(prompt.text, masked(prompt.text, spans, placeholders, is_json=prompt.is_json))

    def _judge_prompt(self, request: GenerationRequest) -> PromptReply:
        for prompt in prompt_texts(request):
            if matches := self._found_in(prompt):
                return self._answer_prompt(request, matches, prompt.place)
        return request

    def _found_in(self, prompt: PromptText) -> list[Match]:
        """The first matches in a prompt's text, if the guard reads it."""
        if not prompt.is_of(self._of):
            return []
        excerpt = Excerpt(is_json=prompt.is_json)
        for piece, is_final in _parts(prompt.text):
            text, matches, undecided = self._scan(excerpt, piece, is_final)
            if matches:
                return matches
            self._decide(excerpt, text, matches, undecided, "")
        return []

    def _redacted(self, prompt: PromptText) -> str:
        return spliced(prompt.text, self._spans(prompt, self._prompt_template))

    def _spans(self, prompt: PromptText, template: str) -> Iterator[Span]:
        """The spans of a prompt's text to replace, in order."""
        if not prompt.is_of(self._of):
            return
        excerpt = Excerpt(is_json=prompt.is_json)
        shown = decided = 0
        for piece, is_final in _parts(prompt.text):
            shown += len(piece)
            text, matches, undecided = self._scan(excerpt, piece, is_final)
            spans, held = self._decide(excerpt, text, matches, undecided, template)
            for start, end, *put in spans:
                yield decided + start, decided + end, put[0], put[1]
            decided = shown - held

    def _reach_of(self, excerpt: Excerpt, text: str) -> int:
        return self._reach_in(text) if excerpt.leads else self._reach

    def _reach_in(self, text: str) -> int:
        """Most characters to the left of a place in `text` that a search without a view reads."""
        return self._reach if self._reader is None else self._reader.reach_in(text)

    def _is_past(self, text: str) -> bool:
        """Whether the detector reads nothing that is before `text`, once it has read `text`."""
        return len(text) >= self._reach if self._reader is None else self._reader.is_past(text)

    def _may_come_back(self, excerpt: Excerpt, text: str, start: int) -> bool:
        """Whether a placeholder may begin in `text[start:]`: a cheap check."""
        return excerpt.values is not None and "[" in text[start:]

    def _unmasked(self, excerpt: Excerpt) -> Unmasked:
        assert excerpt.values is not None
        passing: Container[str] = frozenset() if (own := excerpt.placeholders) is None else own.passing
        at = (excerpt.start, excerpt.taken)
        return Unmasked(
            self.detector, excerpt.values, passing, self._plain, self._reach_in, self._is_past, *at
        )

    def _plain(self, text: str) -> str:
        return text if self._reader is None else self._reader.dressed(text)

    def _scan(
        self,
        excerpt: Excerpt,
        piece: str,
        is_final: bool,
        restored: Iterable[tuple[int, int]] = (),
        *,
        is_cut: bool = False,
    ) -> tuple[str, list[Match], int]:
        """The excerpt's text with the new piece, the matches to act on, and where the decided text ends.
        `restored`: see `Chunk.restored_diff`. `is_cut`: no placeholder goes on after the piece."""
        text = excerpt.text
        done = 0
        for start, end in restored if excerpt.placeholders is not None else ():
            text += self._read(excerpt, piece[done:start], len(text))
            begin, done = len(text), end
            text += self._read(excerpt, piece[start:end], len(text))
            excerpt.came_back(begin, len(text))
        text += self._read(excerpt, piece[done:], len(text), is_final=is_final)
        if excerpt.unmasked is None and self._may_come_back(excerpt, text, len(excerpt.text)):
            excerpt.unmasked = self._unmasked(excerpt)
        if self._reader is not None:
            matches, undecided = self._reader.follow(excerpt, text, is_final)
        else:
            matches, undecided = self.detector.scan(text, excerpt.start, is_final, excerpt.taken)
        after_lead: list[Match] = []
        for i, lead in enumerate(excerpt.leads):
            excerpt.leads[i], found = lead.read(self.detector, text, is_final=is_final)
            after_lead += found
        after_lead += self._found_again(excerpt, text, [*matches, *after_lead], is_final)
        if excerpt.unmasked is not None:
            after_lead += excerpt.unmasked.read(text, excerpt.restored, is_final=is_final, is_cut=is_cut)
        return text, *excerpt.settled(text, matches, undecided, is_final, after_lead)

    def _found_again(
        self, excerpt: Excerpt, text: str, found: Iterable[Match], is_final: bool
    ) -> list[Match]:
        """Keep the values of `found` that only words show. Returns the places where values
        come again."""
        if (worded := self._worded) is None:
            return []
        for match in sorted(filter(worded.is_worded, found), key=order):
            if excerpt.again is None:
                excerpt.again = FoundAgain()
                excerpt.again.start = match.end
            value = text[max(0, match.start) : match.end]
            forms = {value, value if self._reader is None else self._reader.read(value)}
            excerpt.again.add(self._with_inner(forms, worded), match)
        if (again := excerpt.again) is None:
            return []
        search = again.scan if self._reader is None else partial(self._reader.search, again)
        found, again.start = search(text, again.start, is_final)
        return [*again.counting(found)]

    def _with_inner(self, forms: Iterable[str], worded: Worded) -> list[str]:
        """The forms of a value, and the values that it shows by words of its own, as in `token password=V`. A
        rule's matches do not overlap, so the detector finds the outer value alone."""
        values = list(forms)
        for value in values:  # it grows
            inner = filter(worded.is_worded, self.detector.scan(value, 1)[0])
            values += {value[one.start : one.end] for one in inner}.difference(values)
        return values

    def _read(self, excerpt: Excerpt, piece: str, length: int, *, is_final: bool = False) -> str:
        """The characters of `piece`. They follow a text of this length, which begins with the excerpt's."""
        return self._plain(excerpt.read(piece, is_final, length - len(excerpt.text)))


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of `text` to search, each with whether it is the last."""
    for start in range(0, len(text), _PART):
        yield text[start : start + _PART], start + _PART >= len(text)
