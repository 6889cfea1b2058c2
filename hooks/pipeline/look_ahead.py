"""Finds the text that a stream's hooks would release if it ended here. The stream itself does not change.

The hooks' last call is made on copies: of what each holds, and of its state. Only a hook with a true
attribute `copyable` can be asked in this way (contract 3.19).
"""

import logging
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hooks.api import Chunk, StreamContext, emit, terminate
from hooks.decisions.failure import HookError, HookFailure, place_of
from hooks.decisions.tally import SilentTally
from hooks.pipeline.ask import Ask, Asking, Reply
from hooks.pipeline.fragments import Fragment, copies, num_incomplete_of, restored_in, text_of, tokens_of
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.stage import HookStage, Settled
from hooks.pipeline.stream import Stream

logger = logging.getLogger("weir.hooks")


def look_ahead(guarded: GuardedRequest, stream: Stream | None) -> Asking[str | None]:
    """The text that the hooks would release. Empty if no hook holds any. None: a hook cannot be asked in this
    way, or it would fail."""
    if stream is None:
        return ""
    for stage in stream.stages:
        yield from stage.leave()
    stages = [stage for stage in stream.stages if not (stage.hook.is_shadow or stage.is_closed)]
    while stages and not stages[0].held.num_characters:
        del stages[0]  # hooks before the first one that holds text have released all that they were shown
    if not stages:
        return ""
    if not all(stage.hook.is_copyable for stage in stages):
        return None
    suspicions = guarded.suspicions.copy()
    released = [Fragment("")]
    for stage in stages:
        if stage.num_fused:
            released = [*stage.held.fragments, *released]
            continue
        asked = yield from last_call(guarded, stage, released, suspicions)
        try:
            if asked.lets_through:
                released = [*stage.held.fragments, *released]
                continue
            released, ends = asked.settle(copies(stage.held.fragments), copies(released))
        except HookError:
            return None
        if isinstance(ends, terminate) and ends.after is None and ends.text is None:
            return ""
    return text_of(released)


@dataclass(slots=True, eq=False, repr=False)
class LastCall:
    """The last call of a copy of a hook, and its reply."""

    guarded: GuardedRequest
    stage: HookStage
    context: StreamContext
    chunk: Chunk
    reply: Reply
    suspicions: dict[int, str]

    @property
    def lets_through(self) -> bool:
        """Whether all pending text is released untouched."""
        reply = self.reply
        return (
            type(reply) is emit
            and reply.text is self.chunk.pending
            and not (self.stage.judged or reply.unjudged)
        )

    def settle(self, held: list[Fragment], fragments: list[Fragment]) -> Settled:
        """Carry out the reply on `held` and the new `fragments`. Counts and the hook's stage do not change.
        Raises `HookError` if the copy failed. The hook itself has not failed, and may not fail later."""
        hook, of = self.stage.hook, self.guarded
        trial = GuardedRequest(
            of.request, [], {hook.name: SilentTally()}, of.options, suspicions=self.suspicions
        )
        copied = HookStage(trial, hook, self.context)
        copied.held.replace(held)
        try:
            return copied.settle(self.chunk, self.reply, fragments, None)
        except HookError as error:
            logger.debug("a copy of hook %s failed: %s", hook.name, place_of(error.__cause__ or error))
            raise


def last_call(
    guarded: GuardedRequest, stage: HookStage, new: list[Fragment], suspicions: dict[int, str]
) -> Asking[LastCall]:
    """Show the `new` text to a copy of a copyable hook, as if the stream ended with it (contract 3.19)."""
    text_diffs, text = stage.text_diffs, text_of(new)
    num_diffs = len(text_diffs)
    keeps_text = stage.context.keeps_text
    if text and keeps_text:
        text_diffs.append(text)  # removed below: a copy of the list would cost more for longer streams
    failure: HookFailure | None = None
    try:
        context = _copy(stage, suspicions)
    except Exception as error:  # noqa: BLE001 - copying a state runs the hook's own code
        context, failure = stage.context.copied(suspicions, {}, {}), HookFailure(error)
    context.is_cut = guarded.request.steers_end
    num_incomplete, restored = num_incomplete_of(new), restored_in(new)
    chunk = Chunk(context, text, tokens_of(new), True, False, stage.held.texts, num_incomplete, restored)
    ask = Ask(stage.hook, stage.tally, stage.call, False, chunk)
    try:
        if failure is None:
            yield ask
    finally:
        if keeps_text:
            del text_diffs[num_diffs:]
    return LastCall(guarded, stage, context, chunk, failure or ask.reply, suspicions)


def _copy(stage: HookStage, suspicions: dict[int, str]) -> StreamContext:
    context = stage.context
    state, request_state = _copied(context.state, stage), _copied(context.request_state, stage)
    return context.copied(suspicions, request_state, state)


def _copied(state: dict[Any, Any], stage: HookStage) -> dict[Any, Any]:
    if not state:
        return {}
    shared = _Shared(stage.hook.call)
    if len(state) == 1:
        ((name, value),) = state.items()
        if (own_copy := getattr(value, "__deepcopy__", None)) is not None:
            return {name: own_copy(shared)}  # `deepcopy` takes longer, and finds nothing to share
    return {name: deepcopy(value, shared) for name, value in state.items()}


class _Shared(dict[int, Any]):
    """A memo for `deepcopy`: the hook itself and its attributes are no part of a stream's state."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook

    def get(self, key: int, default: Any = None) -> Any:
        if self._hook is not None:
            hook, self._hook = self._hook, None
            self.update((id(one), one) for one in (hook, *getattr(hook, "__dict__", {}).values()))
        return super().get(key, default)
