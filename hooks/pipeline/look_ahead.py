"""Finds the text that a stream's hooks would release if it ended here. The stream itself does not change.

The hooks' last call is made on copies: of what each holds, and of its state. Only a hook with a true
attribute `copyable` can be asked in this way (contract 3.19).
"""

from copy import deepcopy
from typing import Any

from hooks.api import Chunk, StreamContext, emit, terminate
from hooks.decisions.failure import HookError
from hooks.decisions.tally import Tally
from hooks.pipeline.ask import Ask, Asking
from hooks.pipeline.fragments import Fragment, copies, num_incomplete_of, restored_in, text_of, tokens_of
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.stage import HookStage
from hooks.pipeline.stream import Stream


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
        text_diffs, held, text = stage.text_diffs, stage.held.texts, text_of(released)
        num_diffs = len(text_diffs)
        keeps_text = stage.context.keeps_text
        if text and keeps_text:
            text_diffs.append(text)  # removed below: a copy of the list would cost more for longer streams
        context = _copy(stage, suspicions)
        num_incomplete, restored = num_incomplete_of(released), restored_in(released)
        chunk = Chunk(context, text, tokens_of(released), True, False, held, num_incomplete, restored)
        ask = Ask(stage.hook, stage.tally, stage.call, False, chunk)
        try:
            yield ask
            reply = ask.reply
            if type(reply) is emit and reply.text is chunk.pending and not (stage.judged or reply.unjudged):
                released = [*stage.held.fragments, *released]
                continue
            trial = GuardedRequest(
                guarded.request, [], {stage.hook.name: Tally()}, guarded.options, suspicions=suspicions
            )
            copied = HookStage(trial, stage.hook, context)
            copied.held = stage.held.copied()
            released, ends = copied.settle(chunk, reply, copies(released), None)
        except HookError:
            return None
        finally:
            if keeps_text:
                del text_diffs[num_diffs:]
        if isinstance(ends, terminate) and ends.after is None and ends.text is None:
            return ""
    return text_of(released)


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
