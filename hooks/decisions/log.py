"""Hooks' decisions, for hooks that keep account of them, and how verdicts become decisions (contract 8.2)."""

from dataclasses import dataclass, field
from operator import itemgetter

from engine.protocol import GenerationRequest
from hooks.api import Chunk, Note, StreamContext, Verdict
from hooks.api.decision import Action, Decision, Mode
from hooks.decisions.hidden_values import PIECE, HiddenValues
from hooks.decisions.tally import JudgedTokens, Tally
from hooks.loading.loader import LoadedHook


class DecisionLog(list[Decision]):
    """One request's decisions that the listeners have not received yet, and the time."""

    __slots__ = ("min_held", "now")

    def __init__(self, min_held: float = 0.0) -> None:
        """`min_held`: seconds. A shorter hold whose text was released untouched is not reported."""
        super().__init__()
        self.min_held = min_held
        self.now = 0.0
        """Monotonic seconds at the last reply of a hook. The driver sets it: a machine has no clock."""

    def forget_repeated(self, num_decisions: int) -> None:
        """After the first `num_decisions`, keep only decisions at an end. The text of the rest was
        decided before the rewind, and the listeners have received those decisions."""
        kept = ("terminate", "error", "judged")
        self[num_decisions:] = [d for d in self[num_decisions:] if d.action in kept]

    def drain(self) -> tuple[Decision, ...]:
        """Remove and return all decisions, in order."""
        taken = tuple(self)
        self.clear()
        return taken


@dataclass(slots=True, eq=False, repr=False)
class StreamDecisions:
    """Turns one hook's verdicts on one stream into decisions.

    It keeps when each part of the held text came, and where the part ends. Of the text it keeps only a few
    characters: with them, it recognizes the end of a value in the next text.
    """

    _context: StreamContext
    _hook: LoadedHook
    _tally: Tally
    _log: DecisionLog
    _values: HiddenValues
    _call_index: int | None = None
    _arrivals: list[tuple[int, float]] = field(default_factory=list)
    """The parts of the held text: where each ends, and when it came."""
    _decided: tuple[int, str] = 0, ""
    """The end of the text that was decided last, and its last characters."""

    def decided(self, chunk: Chunk, verdict: Verdict, num_held: int, shown: str) -> None:
        """`verdict` was carried out on the pending text; `num_held` characters stay undecided. `shown`: that
        text, with an asterisk for each character of a value that came back."""
        pending = chunk.pending
        end = self._context.count_shown()
        start = end - len(pending)
        if chunk.text_diff:
            self._arrivals.append((end, self._log.now))
        changes = sorted(verdict.changes(pending), key=itemgetter(slice(1, 3)))
        known = self._hidden(shown, num_held) if changes else ""
        for one in changes:
            num_released = 0 if one.action == "terminate" else len(one.replacement)
            num_withheld = one.end - one.start
            num_closing = len(one.replacement) if one.action == "terminate" else 0
            withheld = "" if one.action == "restore" else known[one.start : one.end]
            self._add(
                *(one.action, start + one.start, withheld, one.reason, num_withheld, num_released),
                num_closing=num_closing,
            )
        self._count_hold(len(chunk.text_diff), len(pending), num_held)
        self._forget(end - num_held)

    def moved_on(self, num_new: int, num_pending: int, num_held: int) -> None:
        """All of the pending characters but the last `num_held` were released untouched; `num_new` of them
        had just come."""
        end = self._context.count_shown()
        if num_new:
            self._arrivals.append((end, self._log.now))
        seconds = self._count_hold(num_new, num_pending, num_held)
        if seconds is not None and seconds >= self._log.min_held:
            self._add("hold", end - num_pending, "")
        self._forget(end - num_held)

    def noted(self, note: Note, num_pending: int) -> None:
        """The hook notes something about its pending text, which is released."""
        self._add(note.action, self._context.count_shown() - num_pending, "", note.reason)

    def judged(self, judged: JudgedTokens, reason: str | None) -> None:
        """The stream ended. `reason`: why it ended early."""
        if reason is None and not judged.is_asked:
            reason = "not_asked"
        self._add("judged", 0, "", reason, judged=judged)

    def _count_hold(self, num_new: int, num_pending: int, num_held: int) -> float | None:
        """Count how long the hook held the first pending character, if that was held and now is not. Returns
        the seconds."""
        if num_pending <= num_new or num_held >= num_pending:
            return None
        seconds = self._log.now - self._arrivals[0][1]
        self._tally.count_held(seconds)
        return seconds

    def _forget(self, end: int) -> None:
        """Forget when the characters up to `end` came: they are decided."""
        num_decided = 0
        for place, _ in self._arrivals:
            if place > end:
                break
            num_decided += 1
        del self._arrivals[:num_decided]

    def _hidden(self, pending: str, num_held: int = 0) -> str:
        """The pending text with an asterisk for each character of the caller's values (contract 3.18)."""
        end = self._context.count_shown()
        last, before = self._decided
        if last != end - len(pending):  # there is text between that is in no decision
            before = ""
        decided = before + pending[: len(pending) - num_held]
        self._decided = end - num_held, decided[1 - PIECE :]
        return self._values.hide(pending, before)

    def failed(self, pending: str, reason: str) -> None:
        self._add("error", self._context.count_shown() - len(pending), self._hidden(pending), reason)

    def aborted(self, held: str) -> None:
        """The stream ended early, and the held text was withheld."""
        if held:
            self._count_hold(0, len(held), 0)
            self._add("hold", self._context.count_shown() - len(held), self._hidden(held), "aborted")

    def _add(
        self,
        action: Action,
        offset: int,
        withheld: str,
        reason: str | None = None,
        num_withheld: int | None = None,
        num_released: int = 0,
        *,
        num_closing: int = 0,
        judged: JudgedTokens | None = None,
    ) -> None:
        """`num_withheld`: the characters that were withheld; None: those of `withheld`."""
        now = self._log.now
        came = now if judged else next((when for end, when in self._arrivals if end > offset), now)
        context, request = self._context, self._context.request
        self._log.append(
            Decision(
                request_id=request.request_id,
                user=request.user,
                model=request.model,
                endpoint=request.endpoint,
                hook=self._hook.name,
                hook_index=context.place,
                action=action,
                reason=None if reason is None else str.__str__(reason),
                mode=self._hook.mode,
                output_index=context.output_index,
                channel=context.channel,
                tool_name=context.tool_name,
                call_index=self._call_index,
                is_own_tool=context.is_own_tool,
                offset=offset,
                num_withheld=len(withheld) if num_withheld is None else num_withheld,
                num_released=num_released,
                num_closing=num_closing,
                held_seconds=now - came,
                num_judged=judged.num_judged if judged else 0,
                num_unjudged=judged.num_unjudged if judged else 0,
                max_unjudged=judged.max_unjudged if judged else 0,
                withheld=self._values.hide_part(withheld),
            )
        )


def request_decision(
    request: GenerationRequest, hook: str, action: Action, reason: str | None, mode: Mode = "enforce"
) -> Decision:
    """A hook's decision on the request itself."""
    return Decision(
        request_id=request.request_id,
        user=request.user,
        model=request.model,
        endpoint=request.endpoint,
        hook=hook,
        action=action,
        reason=reason,
        mode=mode,
        output_index=None,
        channel="prompt",
    )
