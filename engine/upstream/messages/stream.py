"""Translates the events of the Messages API to `Delta`s. No I/O.

    message_start  BLOCK*  message_delta+  message_stop
    BLOCK: content_block_start  content_block_delta*  content_block_stop

Any other order of events raises `ValueError`. A ping, and events that later versions of the API may have, are
no part of the answer. An event without a field that it needs raises `KeyError`, `TypeError` or
`AttributeError`.
"""

from collections.abc import Mapping
from typing import Any

from engine.protocol import Delta, FinishReason, GenerationRequest, Usage
from engine.protocol.call_ids import call_key
from engine.upstream.errors import stream_broke
from engine.upstream.limits import OutputCount, TooMuchError, UpstreamOptions
from engine.upstream.messages.blocks import Block
from engine.upstream.messages.signatures import MAX_SIGNATURE, Signatures
from engine.upstream.usage import UsageCount, count_of

_FINISH_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Any other reason of an upstream is "stop"."""
_MAX_BLOCKS = 16 * 1024
"""Blocks of an answer: those of calls without arguments have no text that could be counted."""


class StreamTranslator:
    """One request's stream. Its last delta waits for `finish`, so that it has the upstream's usage.

    Until the upstream sends its usage, the translator counts pieces of text. `signatures` gets what signs the
    reasoning of an answer that has ended well.
    """

    def __init__(
        self, request: GenerationRequest, options: UpstreamOptions, signatures: Signatures | None = None
    ) -> None:
        self._request = request
        self._stop = request.sampling.stop
        self._signatures = signatures
        self._count = UsageCount(Usage(prompt_tokens=0, completion_tokens=0, is_estimated=True))
        self._output = OutputCount(request, "", options.max_upstream_output, self._count)
        self._has_begun = False
        self._num_blocks = 0
        self._num_calls = 0
        self._open: Block | None = None
        self._thinking: list[Block] = []
        self._hidden: list[dict[str, Any]] = []
        """Reasoning without text since the last call."""
        self._num_hidden = 0
        self._hidden_before: dict[int, list[dict[str, Any]]] = {}
        """The reasoning without text right before a call, by the call's index."""
        self._finish: Delta | None = None

    alike = None
    """Each event is parsed."""

    @property
    def is_finished(self) -> bool:
        return self._finish is not None

    def feed(self, chunk: Mapping[str, Any], data: bytes | None = None) -> list[Delta]:
        kind = chunk["type"]
        if kind == "content_block_delta":  # nearly all events
            block = self._block(chunk)
            text = block.text_of(chunk["delta"])
            return [self._delta(block, text)] if text else []
        match kind:
            case "message_start":
                self._begin(chunk["message"])
            case "content_block_start":
                return self._start(chunk)
            case "content_block_stop":
                block, self._open = self._block(chunk), None
                last = block.last()
                self._keep_hidden(block)
                return [self._delta(block, last)] if last else []
            case "message_delta":
                self._end(chunk)
        return []

    def finish(self, *, complete: bool) -> list[Delta]:
        if self._finish is None or not complete:
            raise stream_broke()
        if self._signatures is not None:
            self._remember(self._signatures)
        self._finish.usage = self._count.usage
        return [self._finish]

    def _keep_hidden(self, block: Block) -> None:
        if (hidden := block.hidden) is None:
            return
        self._num_hidden += sum(map(len, hidden.values()))
        if self._num_hidden > MAX_SIGNATURE:
            raise TooMuchError("hidden reasoning is too long")
        self._hidden.append(hidden)

    def _remember(self, signatures: Signatures) -> None:
        texts = [block for block in self._thinking if not block.hidden]
        if len(texts) == 1 and texts[0].signed:
            signatures.add(*texts[0].signed)
        for index, blocks in self._hidden_before.items():
            signatures.add_hidden(self._request.caller, call_key(self._request.request_id, 0, index), blocks)

    def _begin(self, message: Mapping[str, Any]) -> None:
        if self._has_begun or message.get("content"):
            raise ValueError("a second beginning, or one with content")
        self._has_begun = True
        self._read_usage(message.get("usage"))

    def _start(self, chunk: Mapping[str, Any]) -> list[Delta]:
        if not self._has_begun or self._open is not None or self.is_finished:
            raise ValueError("a block where none can begin")
        if chunk["index"] != self._num_blocks:
            raise ValueError("a gap between blocks")
        if self._num_blocks >= _MAX_BLOCKS:
            raise TooMuchError("an output has too many blocks")
        block = self._open = Block(chunk["content_block"], self._num_calls)
        if block.call is not None and self._hidden:
            self._hidden_before[self._num_calls], self._hidden = self._hidden, []
        self._num_blocks += 1
        self._num_calls += block.call is not None
        if block.kind == "thinking":
            self._thinking.append(block)
        return [self._delta(block, block.first)] if block.first else []

    def _block(self, chunk: Mapping[str, Any]) -> Block:
        """The open block, which the event is for."""
        if self._open is None or chunk["index"] != self._num_blocks - 1:
            raise ValueError("an event of a block that is not open")
        return self._open

    def _end(self, chunk: Mapping[str, Any]) -> None:
        if not self._has_begun or self._open is not None:
            raise ValueError("an end where none can be")
        self._read_usage(chunk.get("usage"))
        reason = chunk["delta"].get("stop_reason")
        if reason is None or self.is_finished:
            return
        stop_sequence = chunk["delta"].get("stop_sequence")
        # Any text but the caller's own stop strings could be output that no hook has seen.
        is_own = reason == "stop_sequence" and stop_sequence in self._stop
        self._finish = Delta(
            finish_reason=_FINISH_REASONS.get(reason, "stop"),
            stop_reason=stop_sequence if is_own else None,
            is_cut=reason not in ("end_turn", "tool_use"),
        )

    def _delta(self, block: Block, text: str) -> Delta:
        if block.kind == "thinking":
            block.sign(text)
        usage = self._output.add(block.channel, len(text), 1, 1)
        return Delta(text=text, channel=block.channel, tool_call=block.call, usage=usage)

    def _read_usage(self, reported: Any) -> None:
        """Counts that an event lacks stay. The API counts cached tokens of the prompt apart."""
        if not isinstance(reported, Mapping):
            return
        used = self._count.usage
        read = count_of(reported, "cache_read_input_tokens", used.cached_tokens)
        written = count_of(reported, "cache_creation_input_tokens", used.cache_written_tokens)
        by_age = reported.get("cache_creation")
        hour = count_of(by_age, "ephemeral_1h_input_tokens", used.cache_written_1h_tokens)
        prompt = used.prompt_tokens
        if reported.get("input_tokens") is not None:
            prompt = count_of(reported, "input_tokens", 0) + read + written
        generated = count_of(reported, "output_tokens", used.completion_tokens)
        is_estimated = not prompt or count_of(reported, "output_tokens", -1) < 0
        self._count.usage = Usage(
            *(prompt, generated, read, used.reasoning_tokens, written, min(hour, written), is_estimated)
        )
