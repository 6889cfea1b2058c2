"""Which tools a model may call, and with which arguments: `tools`, with a policy in its `args`.

A call is held until the policy's rules decide on it. A denied call never reaches the client.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hooks import (
    Chunk,
    GenerationRequest,
    Verdict,
    ask,
    checked,
    emit,
    hold,
    redact,
    rewind,
    suppress,
    terminate,
)
from hooks.builtin.tool_policy.arguments import Arguments
from hooks.builtin.tool_policy.conversation import Conversation
from hooks.builtin.tool_policy.rules import Policy, Rule, WrittenRule
from hooks.detect.argument_types import Count, Text
from hooks.json.editing import asks_for_json

DENIED = "tool_denied"
"""The reason for a call that the policy denies."""
UNREADABLE = "tool_arguments"
"""The reason for arguments that are not JSON, have a name twice, end too soon or are too long."""


@dataclass(slots=True)
class _Call:
    """A tool call that is being read."""

    rules: list[Rule]
    arguments: Arguments
    is_asked: bool = False
    """A person decides on the call."""
    num_read: int = 0
    """Characters that were read before the decision."""
    is_allowed: bool | None = None
    """None: not decided yet."""
    is_free: bool = False
    """Whether its arguments do not matter."""


class Tools:
    """Lets tool calls pass that the rules allow, and withholds the others.

    The first rule that applies to a call decides. A tool that some rule names is denied if none of its rules
    applies. `allow` applies if every value at each place of `when` is right, and there is one; `deny` and
    `deny_if_tainted` apply if one value at each place is right, or cannot be judged.
    """

    thread_safe = True

    @checked
    def __init__(
        self,
        rules: Sequence[WrittenRule] = (),
        *,
        default: Literal["allow", "deny"] = "deny",
        action: Literal["suppress", "terminate", "rewind", "ask"] = "suppress",
        text: Text | None = "[A tool call was withheld: the policy does not allow it.]",
        max_held: Count = 65536,
    ) -> None:
        """`rules`: the policy. A rule names `tools` (globs) and an `effect`: `allow` (the default), `deny` or
        `deny_if_tainted`. `when`: conditions by JSON pointer (`*`: every item): `values`, `pattern`, `host`,
        `links`, `path`, `range`, `length` and `from`. `optional`: pointers whose values may be missing.
        `asked`: a pattern that the user's own words must have. `default`: for tools that no rule names.

        `action`: `suppress` withholds a denied call and continues. `terminate` ends the request. `rewind` has
        the model write something else. `ask` has a person decide on the call, unless it cannot be read.
        `text`: what `suppress`, and a person's refusal, puts at the end of the answer. `max_held`:
        most characters of arguments that a decision may take; a longer call is denied.

        Raises `ValueError` for a rule that cannot be checked, and names the rule.
        """
        self._policy = Policy(rules, default)
        self._text = text
        self._action = action
        self.may_rewind = action == "rewind"
        self.max_hold = max_held

    @property
    def on_request(self) -> Callable[..., Any] | None:
        """None if no rule reads the conversation's words: then the guard is not shown prompts."""
        return self._remember if any(rule.reads_prompt for rule in self._policy.rules) else None

    def _remember(self, request: GenerationRequest, state: dict[Any, Any]) -> GenerationRequest:
        """Hooks after this one may change the prompt, as `wrap` does."""
        state["asked"] = request
        return request

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.aborted:
            chunk.request_state.pop(chunk.output_index, None)
        elif chunk.channel == "tool_call":
            return self._judge(chunk)
        elif chunk.channel == "content" and chunk.is_final and chunk.output_index in chunk.request_state:
            return self._close(chunk)
        return emit(chunk.pending)

    def _judge(self, chunk: Chunk) -> Verdict:
        call: _Call | None = chunk.state.get("call")
        if call is None:
            call = chunk.state["call"] = self._begun(chunk)
            if call.is_allowed is False and self._action == "ask":
                verdict = self._ask(chunk, call)
                later = self._read(chunk, call)
                return verdict if isinstance(later, emit) else later
            if call.is_allowed is False:
                return self._deny(chunk, DENIED)
            call.is_free = call.is_allowed is True
        if call.is_allowed is False:
            return suppress()
        return emit(chunk.pending) if call.is_free else self._read(chunk, call)

    def _begun(self, chunk: Chunk) -> _Call:
        rules = self._policy.rules_for(chunk.tool_name or "")
        call = _Call(rules, Arguments(frozenset().union(*(rule.members for rule in rules))))
        self._decide(chunk, call)
        return call

    def _read(self, chunk: Chunk, call: _Call) -> Verdict:
        """Read the new text. The verdict depends on the text alone, and not on how it is cut: what is wrong
        after the place where the call was allowed ends the output there."""
        text = chunk.text_diff
        num_good = 0
        verdict: Verdict | None = None
        if call.is_allowed is None:
            num_good = self._read_to_decide(chunk, call, text)
            if call.is_allowed is not True:
                verdict = self._hold_or_deny(chunk, call, is_whole=num_good == len(text))
                if not isinstance(verdict, ask):
                    return verdict
        num_good += call.arguments.feed(text[num_good:])
        if call.arguments.is_bad and call.is_asked:
            call.is_allowed = False  # nothing of the call has left, and nobody can read it
            return self._deny(chunk, UNREADABLE)
        if call.arguments.is_bad:
            after = len(chunk.pending) - len(text) + num_good
            return terminate(UNREADABLE, after=after, scope="output")
        return verdict or emit(chunk.pending)

    def _read_to_decide(self, chunk: Chunk, call: _Call, text: str) -> int:
        """Read as much as a decision may take. Returns the number of good characters."""
        arguments = call.arguments
        num_known = arguments.num_known
        num_good = arguments.feed(text[: self.max_hold - call.num_read])
        call.num_read += num_good
        if chunk.is_final and arguments.is_blank:
            arguments.is_complete = True  # of a tool without arguments
        if arguments.num_known != num_known:
            self._decide(chunk, call)
        return num_good

    def _hold_or_deny(self, chunk: Chunk, call: _Call, *, is_whole: bool) -> Verdict:
        if call.is_allowed is None and is_whole and not chunk.is_final:
            return hold()
        if call.is_allowed is False and self._action == "ask":
            return self._ask(chunk, call)
        reason = UNREADABLE if call.is_allowed is None else DENIED
        call.is_allowed = False
        return self._deny(chunk, reason)

    def _ask(self, chunk: Chunk, call: _Call) -> ask:
        """Have a person decide. The rest of the arguments must still be readable."""
        call.is_allowed = call.is_asked = True
        return ask(DENIED, text=None if asks_for_json(chunk.request) else self._text)

    def _decide(self, chunk: Chunk, call: _Call) -> None:
        is_tainted = chunk.request.taint is not None
        conversation = self._conversation(chunk)
        name = chunk.tool_name or ""
        call.is_allowed = self._policy.decide(
            name, call.rules, call.arguments, conversation, is_tainted=is_tainted
        )

    def _conversation(self, chunk: Chunk) -> Conversation:
        """The words of the conversation, before and after later hooks changed it."""
        conversation: Conversation | None = chunk.request_state.get("conversation")
        if conversation is None:
            asked = chunk.request_state.pop("asked", chunk.request)
            forms = [asked] if asked == chunk.request else [asked, chunk.request]
            conversation = chunk.request_state["conversation"] = Conversation(forms, chunk.caller_values)
        return conversation

    def _deny(self, chunk: Chunk, reason: str) -> Verdict:
        if self._action == "terminate":
            return terminate(reason)
        if self._action == "rewind":
            return rewind(reason)
        chunk.request_state[chunk.output_index] = True
        return suppress(reason)

    def _close(self, chunk: Chunk) -> Verdict:
        """Say at the end of the answer that a call was withheld."""
        if self._text is None or asks_for_json(chunk.request):
            return emit(chunk.pending)
        end = len(chunk.pending)
        gap = "\n\n" if chunk.text else ""
        return redact([(end, end, gap + self._text, DENIED)])
