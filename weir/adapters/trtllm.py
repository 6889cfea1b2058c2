"""Weir's guards as TensorRT-LLM's post-processor hook.

    WEIR_CONFIG=weir.yaml trtllm-serve MODEL --post_processor_hook weir.adapters.trtllm.Hook

TensorRT-LLM calls the hook once an output for each piece of text, and lets it do three things: replace the
piece's text, drop the piece with its token ids and logprobs, or end the request. Weir releases a piece's ids
and logprobs only with its text, unchanged. So the text of a piece waits until all text before it is decided,
and leaves with the next piece that leaves whole. The other pieces' ids and logprobs are dropped. A guard that
withholds top alternatives lets no piece leave whole: then all text leaves at the end.

Read in `tensorrt_llm/executor/postprocessor_hook.py` and `result.py` of TensorRT-LLM (pull requests 15239 and
15631, and the page of the hook in November 2026).
"""

import time
from collections import OrderedDict
from importlib import import_module
from typing import Any, Protocol

from engine.protocol import Delta, GenerationRequest, SamplingParams, Token, TopLogprob
from hooks.decisions.failure import HookError
from weir.adapters.configured import plain_guards
from weir.answer import PIECE, Answer

MAX_SILENCE = 3600.0
"""Seconds without a piece of a request, after which the hook forgets it: TensorRT-LLM does not say that a
client has left. A later piece fails."""
_MARK = (TopLogprob(None, b"", 0.0),)
"""Stands for the alternatives, which the hook is not shown. A guard that withholds them takes it away."""


class PostProcessorHookChunk(Protocol):
    """A piece, as TensorRT-LLM tells of it. It does not say what the client asked for."""

    @property
    def request_id(self) -> int: ...
    @property
    def output_index(self) -> int: ...
    @property
    def text_diff(self) -> str: ...
    @property
    def text(self) -> str:
        """The text that earlier verdicts left, and `text_diff`."""

    @property
    def is_final(self) -> bool:
        """Whether the whole request is done, all its outputs."""

    @property
    def streaming(self) -> bool: ...


class Hook:
    """The hooks of the configuration (`weir.adapters.configured`), for all requests of one process or thread.

    Each output is a request of its own for the hooks. TensorRT-LLM does not say why an output ends, so every
    end counts as one that the client may have chosen (contract 2.9). A pickled hook is made anew.

    Raises `HookLoadError` and `ValueError` if a hook cannot run here.
    """

    def __init__(self) -> None:
        self._verdicts: Any = import_module("tensorrt_llm.executor.postprocessor_hook")
        self._guards = plain_guards("TensorRT-LLM's hook")
        self._requests: OrderedDict[int, _Request] = OrderedDict()
        """Those that go on, and those that were ended before their time. The one called last is the last."""

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()

    def __call__(self, chunk: PostProcessorHookChunk) -> Any:
        """TensorRT-LLM's verdict about the piece. Raises `HookError` and `OutOfOrderError`: TensorRT-LLM then
        fails the request."""
        request = self._requests.get(chunk.request_id)
        if request is None:
            self._forget_silent()
            request = self._requests[chunk.request_id] = _Request()
        else:
            self._requests.move_to_end(chunk.request_id)
        request.called = time.monotonic()
        if request.error is not None:
            raise request.error
        if request.is_ended:
            return self._verdicts.suppress()
        try:
            return self._verdict(request, chunk)
        except HookError as error:
            failure = HookError(error.hook)
            request.end(failure)
        except BaseException:
            request.end(OutOfOrderError())
            raise
        raise failure  # here, TensorRT-LLM's log has nothing of the hook's own error (contract 4.2)

    def _verdict(self, request: "_Request", chunk: PostProcessorHookChunk) -> Any:
        output = request.outputs.get(chunk.output_index)
        if output is None:
            output = request.outputs[chunk.output_index] = _Output(self._open(chunk))
        if chunk.text != output.sent + chunk.text_diff:
            raise OutOfOrderError
        if not chunk.streaming and not chunk.is_final:
            return self._verdicts.emit("")  # the next call has this text again
        is_whole = output.take(chunk.text_diff, is_last=chunk.is_final)
        if output.answer.is_over:
            request.end()
            return self._ending(output.answer.stop_reason, output.leave())
        if chunk.is_final:
            request.close(chunk.output_index)
            if not request.outputs:
                del self._requests[chunk.request_id]
        if is_whole:
            return self._verdicts.emit(output.leave())
        if chunk.is_final and output.waiting:
            return self._ending(None, output.leave())
        return self._verdicts.suppress()

    def _ending(self, reason: str | None, text: str) -> Any:
        """The verdict that has text and drops the piece's ids and logprobs. It ends the request."""
        verdict = self._verdicts.terminate(reason)
        verdict.text = text
        return verdict

    def _open(self, chunk: PostProcessorHookChunk) -> Answer:
        request = GenerationRequest(
            request_id=f"{chunk.request_id}-{chunk.output_index}",
            model="",
            endpoint="chat",
            stream=chunk.streaming,
            sampling=SamplingParams(
                logprobs=1
            ),  # guards withhold alternatives only if somebody asks for them
        )
        return self._guards.open(request, may_be_cut=True)

    def _forget_silent(self) -> None:
        before = time.monotonic() - MAX_SILENCE
        while self._requests:
            request_id, request = next(iter(self._requests.items()))
            if request.called > before:
                return
            del self._requests[request_id]
            if not request.is_ended:
                request.end(OutOfOrderError())
                request.called = time.monotonic()
                self._requests[request_id] = request


class OutOfOrderError(RuntimeError):
    """TensorRT-LLM called the hook with text that does not follow what the hook let through."""

    def __init__(self) -> None:
        super().__init__("the text does not follow what the guards released")


class _Request:
    def __init__(self) -> None:
        self.outputs: dict[int, _Output] = {}
        self.called = 0.0
        self.is_ended = False
        """Whether it was ended before its time."""
        self.error: Exception | None = None
        """Why it failed, if it was ended by that."""

    def end(self, error: Exception | None = None) -> None:
        self.is_ended, self.error = True, error
        for index in [*self.outputs]:
            self.close(index)

    def close(self, index: int) -> None:
        self.outputs.pop(index).answer.close()


class _Output:
    """One output of a request."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.sent = ""
        self.waiting = ""
        """The text that the guards have released and TensorRT-LLM has not got."""
        self._num_pieces = 0

    def take(self, text: str, *, is_last: bool) -> bool:
        """Whether all of the text is released, unchanged, and its ids and logprobs with it."""
        first, released = self._num_pieces, list[Delta]()
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            token = Token(self._num_pieces, piece, top=_MARK)
            released += self.answer.feed(Delta(text=piece, tokens=(token,)))
            self._num_pieces += 1
            if self.answer.is_over:
                break
        if is_last and not self.answer.is_over:
            released += self.answer.end()
        self.waiting += "".join(delta.text for delta in released)
        whole = {token.id for delta in released for token in delta.tokens if token.top}
        return text != "" and all(i in whole for i in range(first, self._num_pieces))

    def leave(self) -> str:
        text, self.waiting = self.waiting, ""
        self.sent += text
        return text
