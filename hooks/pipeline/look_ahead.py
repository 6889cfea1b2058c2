"""What a stream's hooks would release if the stream ended here. The stream goes on as if nobody had asked.

The hooks' last call is made on copies: of what each holds, and of its state. Only a hook with a true
attribute `copyable` can be asked so (contract 3.19).
"""

from collections import deque
from copy import deepcopy
from typing import Any

from engine.protocol import Delta
from hooks.pipeline.ask import Asking
from hooks.pipeline.failure import HookError
from hooks.pipeline.fragments import Fragment, HeldText, copies, text_of
from hooks.pipeline.guarded_request import GuardedRequest
from hooks.pipeline.stage import HookStage, Stream
from hooks.pipeline.tally import Tally


def look_ahead(guarded: GuardedRequest, stream: Stream) -> Asking[str | None]:
    """The text. Empty if no hook holds any. None: a hook cannot say it, or would fail."""
    stages = [stage for stage in stream.stages if not (stage.hook.is_shadow or stage.is_closed)]
    while stages and not stages[0].held.num_characters:
        del stages[0]  # hooks before the first one that holds text have released all that they were shown
    if not stages:
        return ""
    if not all(stage.hook.is_copyable for stage in stages):
        return None
    hooks = [stage.hook for stage in stages]
    trial = GuardedRequest(
        guarded.request,
        hooks,
        {hook.name: Tally() for hook in hooks},
        guarded.options,
        suspicions=dict(guarded.suspicions),
    )
    copied = Stream(trial, Delta(index=stream.index, channel=stream.channel, tool_call=stream.tool_call))
    for stage, trial_stage in zip(stages, copied.stages, strict=True):
        _copy(stage, trial_stage)
    try:
        released, _ = yield from copied.feed([Fragment("")], is_final=True)
    except HookError:
        return None
    return text_of(released)


def _copy(stage: HookStage, copied: HookStage) -> None:
    held = stage.held
    copied.pieces += stage.pieces
    copied.context.place = stage.context.place
    copied.context.state.update(_copied(stage.context.state, stage))
    copied.context.request_state = _copied(stage.context.request_state, stage)
    pieces = None if held.pieces is None else (held.pieces[0][: held.pieces[1]], held.pieces[1])
    copied.held = HeldText(deque(copies(held.fragments)), held.num_characters, pieces)


def _copied(state: dict[Any, Any], stage: HookStage) -> dict[Any, Any]:
    """The hook itself and its attributes are no part of a stream's state."""
    if not state:
        return {}
    hook = stage.hook.call
    shared = {id(one): one for one in (hook, *getattr(hook, "__dict__", {}).values())}
    return {name: deepcopy(value, shared) for name, value in state.items()}
