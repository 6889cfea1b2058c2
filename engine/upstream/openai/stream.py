"""Translates the chunks of an OpenAI-compatible stream to `Delta`s. No I/O.

It accepts the known differences between servers: an index may be missing or be a counter, a finish reason may
be empty, reasoning has two names, and usage comes in a chunk of its own or with the last one. Other chunks
that are not as expected raise `KeyError`, `IndexError`, `TypeError`, `AttributeError` or `ValueError`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.protocol import Channel, Delta, FinishReason, GenerationRequest, Token, ToolCall, Usage
from engine.upstream.call import TranslateAlike
from engine.upstream.errors import stream_broke
from engine.upstream.json_text import HalfCharacters
from engine.upstream.limits import OutputCount, TooMuchError, UpstreamOptions
from engine.upstream.openai.calls import Segment, ToolCalls
from engine.upstream.openai.prompt import PromptReader
from engine.upstream.openai.request import asks_for_echo
from engine.upstream.openai.template import TextTemplate, text_alone, text_in
from engine.upstream.openai.tokens import TokenAligner, TokenReader, checked_ids, is_id
from engine.upstream.usage import UsageCount, count_of

_FINISH_REASONS: dict[str, FinishReason] = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "max_length", "model_length"), "length"),
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
"""Any other reason of an upstream is "stop"."""
_OWN_ENDS = frozenset(
    {"stop", "eos", "eos_token", "end_turn", "complete", "completed"}
    | {"tool_calls", "function_call", "tool_use"}
)
"""The reasons that upstreams give for the model's own end. Some give them for a stop string, too."""
_FAILURES = ("abort", "error")
_TEXT_FIELDS = ("content", "refusal", "reasoning_content", "reasoning", "tool_calls", "function_call")
"""The fields of a delta that may have text or calls."""
_MAX_CHOICES = 64
"""Choices of one event, for each output. Servers send one."""


class StreamTranslator:
    """One request's stream. The last delta of all waits for `finish`, so that it has the upstream's usage.

    Until the upstream sends its usage, the translator counts tokens, or pieces of text if it gets no tokens.
    """

    def __init__(self, request: GenerationRequest, options: UpstreamOptions | None = None) -> None:
        most = (options or UpstreamOptions()).max_upstream_output
        prompt_tokens = sum(len(prompt) for prompt in request.prompts if not isinstance(prompt, str))
        self._count = UsageCount(Usage(prompt_tokens=prompt_tokens, completion_tokens=0))
        asks_for_prompt = request.sampling.prompt_logprobs is not None
        prompts = PromptReader(request.num_prompt_logprobs or 0) if asks_for_prompt else None
        outputs = range(request.num_outputs)
        self._outputs = [_Output(request, index, self._count, most, prompts) for index in outputs]
        self._only = self._outputs[0] if len(self._outputs) == 1 else None
        self.is_finished = False
        """Whether every output has its finish reason."""
        self._last: list[Delta] = []
        self._template = TextTemplate(self._outputs[0].count)
        self.alike: TranslateAlike | None = None

    def feed(self, chunk: Mapping[str, Any], data: bytes | None = None) -> list[Delta]:
        """Translate a chunk (parsed JSON). `data`: its JSON, to know chunks like it. Raises `EngineError` if
        the upstream says that it gave up, and `TooMuchError` if an output is longer than it may be."""
        choices: Sequence[Any] = chunk.get("choices") or ()
        if self._only is not None and len(choices) == 1:  # the usual event; its index may be a counter
            deltas = self._only.feed(choices[0], chunk)
            if data is not None and self._only.is_plain and (text := text_in(chunk)):
                self._template.learn(data, text)
        else:
            deltas = self._feed_all(choices, chunk)
        self.alike = self._template.delta_of if self._only is not None and self._only.is_plain else None
        # vLLM: with several outputs, the usage in the event of a choice counts this choice only.
        if (usage := chunk.get("usage")) and not (choices and self._only is None):
            self._count.usage = _usage(usage, self._count.usage)
            deltas = [replace(delta, usage=self._count.usage) for delta in deltas]
        return self._without_last(deltas)

    def _feed_all(self, choices: Sequence[Mapping[str, Any]], chunk: Mapping[str, Any]) -> list[Delta]:
        if len(choices) > _MAX_CHOICES * len(self._outputs):
            raise TooMuchError("an event has too many choices")
        pairs = zip(choices, self._outputs_of(choices), strict=True)
        return [delta for choice, output in pairs for delta in output.feed(choice, chunk)]

    def _outputs_of(self, choices: Sequence[Mapping[str, Any]]) -> "list[_Output]":
        indexes = [choice.get("index") or 0 for choice in choices]
        if len(self._outputs) == 1 and len(set(indexes)) == 1:
            return self._outputs * len(indexes)  # the index may be a counter
        if min(indexes, default=0) < 0:
            raise IndexError("an output's index is negative")
        return [self._outputs[index] for index in indexes]

    def finish(self, *, complete: bool) -> list[Delta]:
        """The stream has ended, with `[DONE]` if `complete`. Raises `EngineError` if an output is cut off."""
        deltas: list[Delta] = []
        for output in self._outputs:
            if not output.is_finished:
                if not complete or not output.has_begun:
                    raise stream_broke()
                deltas += output.end(None, None, [])
        deltas = self._without_last(deltas)
        return [*deltas, *(replace(delta, usage=self._count.usage) for delta in self._last)]

    def _without_last(self, deltas: list[Delta]) -> list[Delta]:
        is_end = deltas and deltas[-1].finish_reason is not None
        if is_end and all(output.is_finished for output in self._outputs):
            self.is_finished = True
            self._last = [deltas.pop()]
        return deltas


class _Output:
    """One output: decides the channel of its text, and which of its tokens are delivered."""

    def __init__(
        self,
        request: GenerationRequest,
        index: int,
        count: UsageCount,
        most: int,
        prompts: PromptReader | None,
    ) -> None:
        prompt = request.prompts[index // request.sampling.n] if request.prompts else ""
        self.is_finished = False
        self.has_begun = False
        self._index = index
        self.is_plain = False
        """Whether text without tokens continues the content as it comes."""
        self.count = OutputCount(request, prompt, most, count)
        self._usage = count
        self._tokens = TokenReader(request, () if isinstance(prompt, str) else prompt)
        self._stop = request.sampling.stop
        self._stop_token_ids = request.sampling.stop_token_ids
        self._aligner = TokenAligner(self._stop)
        self._channel: Channel = "content"
        self._calls = ToolCalls(self.count)
        self._halves = HalfCharacters()
        self._seen_parts: set[str] = set()
        """The parts that deltas have had: reasoning, content, calls."""
        self._in_call = False
        """Whether a call's arguments are not whole."""
        self._after_call: list[Delta] = []
        """Text that came in the middle of a call."""
        self._prompt_token_ids = None if isinstance(prompt, str) else prompt
        # An echoed text is recognized by its text, echoed ids are recognized by their number.
        self._echo_text = prompt if asks_for_echo(request) and isinstance(prompt, str) else ""
        self._echo_ids = prompt if asks_for_echo(request) and not isinstance(prompt, str) else ()
        self._prompt = prompt if request.prompts else None
        self._has_own_echo = request.echo and not asks_for_echo(request)
        self._prompts = prompts
        self._waiting = ""
        self._num_echoed = 0

    def feed(self, choice: Mapping[str, Any], chunk: Mapping[str, Any]) -> list[Delta]:
        if self.is_finished:
            return []
        if self.is_plain and (text := text_alone(choice)):
            return [self._delta("content", text)]
        deltas = self._read(choice, chunk)
        is_bare = self._aligner.is_bare and self._channel == "content"
        self.is_plain = is_bare and not (self.is_finished or self._halves or self._in_call)
        return deltas

    def _read(self, choice: Mapping[str, Any], chunk: Mapping[str, Any]) -> list[Delta]:
        prompt_token_ids = choice.get("prompt_token_ids") or chunk.get("prompt_token_ids")
        if prompt_token_ids and not self.has_begun:
            self._prompt_token_ids = tuple(checked_ids(prompt_token_ids))
        deltas = [] if self.has_begun else self._read_prompt(choice)
        self.has_begun = True
        tokens = self._tokens.read(choice)
        ends_early = choice.get("finish_reason") not in (None, "", "length")
        if ends_early and tokens and tokens[-1].id in self._stop_token_ids:
            tokens.pop()  # it may have text, and this text, like a stop string, is not shown to guards
        segments = list(self._segments(choice)) or [(self._channel, None, "")]
        for number, segment in enumerate(segments, start=1):
            deltas += self._put(segment, tokens, more=number < len(segments))
            tokens = []
        if reason := choice.get("finish_reason"):
            if reason in _FAILURES:
                raise stream_broke()
            return self.end(reason, choice.get("stop_reason", choice.get("matched_stop")), deltas)
        return self._begun(self._in_order(deltas))

    def end(self, reason: str | None, stop_reason: str | int | None, deltas: list[Delta]) -> list[Delta]:
        """`deltas`, then the rest of the output. The last delta has the finish reason."""
        self.is_finished = True
        reason = reason and str(reason).lower()
        finish_reason = _FINISH_REASONS.get(reason, "stop") if reason else self._calls_reason
        for segment in self._last_segments(is_cut=finish_reason in ("length", "content_filter")):
            deltas += self._put(segment, [], more=False)
        text, tokens = self._aligner.flush()
        if self._stop_token_ids and reason != "length":
            tokens = _without_nameless_end(tokens)
        if text or tokens:
            deltas += self._release(text, tokens)
        deltas = self._in_order(deltas, is_last=True) or [self._delta("content", "")]
        # Any text but the caller's own stop strings could be output that no hook has seen.
        is_own = is_id(stop_reason) or stop_reason in self._stop
        deltas[-1] = replace(
            deltas[-1],
            finish_reason=finish_reason,
            stop_reason=stop_reason if is_own else None,
            is_cut=reason not in _OWN_ENDS,
        )
        return self._begun(deltas)

    def _begun(self, deltas: list[Delta]) -> list[Delta]:
        if deltas and self._prompt_token_ids is not None:
            deltas[0] = replace(deltas[0], prompt_token_ids=self._prompt_token_ids)
            self._prompt_token_ids = None
        return deltas

    def _read_prompt(self, choice: Mapping[str, Any]) -> list[Delta]:
        """The prompt, if the caller wants its logprobs, or if the upstream does not echo it."""
        if self._prompts is None:
            is_own = self._has_own_echo and isinstance(self._prompt, str)
            return [self._delta("echo", str(self._prompt))] if is_own else []
        entries = choice.get("prompt_logprobs")
        return [self._delta("echo", *self._prompts.read(entries, self._prompt_token_ids, self._prompt))]

    @property
    def _calls_reason(self) -> FinishReason:
        return "tool_calls" if self._calls else "stop"

    def _segments(self, choice: Mapping[str, Any]) -> Iterator[Segment]:
        delta, is_whole = choice.get("delta") or {}, False
        if (message := choice.get("message")) and not any(map(delta.get, _TEXT_FIELDS)):
            delta, is_whole = message, True
        content = delta.get("content") or delta.get("refusal")
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or _thinking(content)
        if reasoning and self._is_new("reasoning", is_whole=is_whole):
            yield "reasoning", None, self._halves.join("reasoning", _text(reasoning))
        if content and self._is_new("content", is_whole=is_whole):
            yield "content", None, self._halves.join("content", _text(content))
        has_calls = delta.get("tool_calls") or delta.get("function_call")
        if has_calls and self._is_new("calls", is_whole=is_whole):
            yield from self._calls.feed(delta, are_whole=is_whole)
        if text := _text(choice.get("text")):
            yield from self._without_echo(self._halves.join("text", text))

    def _is_new(self, part: str, *, is_whole: bool) -> bool:
        """Whether a part of a delta or of a whole message continues the answer. A message's part does not if
        a delta has had this part: such a message repeats the deltas before it."""
        if is_whole:
            return part not in self._seen_parts
        self._seen_parts.add(part)
        return True

    def _last_segments(self, *, is_cut: bool) -> Iterator[Segment]:
        """The text that waits at the end."""
        for channel in ("reasoning", "content"):
            if half := self._halves.end(channel):
                yield channel, None, half
        yield from self._without_echo(self._halves.end("text"))
        if self._waiting:
            yield "content", None, self._waiting
        yield from self._calls.end(is_cut=is_cut)

    def _without_echo(self, text: str) -> Iterator[Segment]:
        """Separate the echoed prompt from the content. If the upstream does not echo, all text is content."""
        self._waiting += text
        prompt, text = self._echo_text, self._waiting
        if len(text) < len(prompt) and prompt.startswith(text):
            return
        self._echo_text = self._waiting = ""
        if prompt and text.startswith(prompt):
            yield "echo", None, prompt
            text = text[len(prompt) :]
        if text:
            yield "content", None, text

    def _put(self, segment: Segment, tokens: Sequence[Token], *, more: bool) -> list[Delta]:
        channel, call, text = segment
        deltas: list[Delta] = []
        if channel != self._channel and self._aligner.waits:
            deltas += self._release(self._aligner.mute(), ())
        if channel == "tool_call":
            # The upstream's parser made this text from other text: no token has it.
            self._channel = "content"
            self._aligner.mute()
            return [*deltas, self._delta("tool_call", text, call=call)] if call is not None else deltas
        self._channel = channel
        text, settled = self._aligner.feed(tokens, text, more=more)
        return [*deltas, *self._release(text, settled)] if text else deltas

    def _in_order(self, deltas: list[Delta], *, is_last: bool = False) -> list[Delta]:
        """Text that came in the middle of a call comes after it. The totals of a request never decrease."""
        is_open = self._calls.is_open and not is_last
        if not (is_open or self._in_call):
            return deltas
        channels = [delta.channel for delta in deltas]
        begin = channels.index("tool_call") if "tool_call" in channels and not self._in_call else 0
        ordered = [delta for at, delta in enumerate(deltas) if at < begin or delta.channel == "tool_call"]
        self._after_call += [delta for delta in deltas[begin:] if delta.channel != "tool_call"]
        self._in_call = is_open
        if not is_open:
            ordered += [replace(delta, usage=self._usage.usage) for delta in self._after_call]
            self._after_call = []
        return ordered

    def _release(self, text: str, tokens: tuple[Token, ...]) -> list[Delta]:
        echo = tokens[: len(self._echo_ids) - self._num_echoed]
        echo_text = "".join(token.text for token in echo)
        rest = tokens[len(echo) :]
        if rest and not echo_text and not self._num_echoed:
            echo, rest = (), tokens  # prompt and output came in one piece
            self._num_echoed = len(self._echo_ids)
        self._num_echoed += len(echo)
        deltas = [self._delta("echo", echo_text, echo)] if echo else []
        if rest or not tokens:
            text = text[len(echo_text) :] if echo else text
            deltas.append(self._delta(self._channel, text, rest))
        return deltas

    def _delta(
        self, channel: Channel, text: str, tokens: tuple[Token, ...] = (), call: ToolCall | None = None
    ) -> Delta:
        num_tokens = 0 if channel == "echo" else len(tokens) or bool(text)
        # `ToolCalls` counts arguments when they come.
        num_chars, num_pieces = (0, 0) if channel == "tool_call" else (len(text), num_tokens)
        usage = self.count.add(channel, num_chars, num_pieces, num_tokens)
        return Delta(self._index, text, tokens, channel, call, usage=usage)


def _without_nameless_end(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens without a last one that may be the stop id's. The upstream gives no ids."""
    return tokens[:-1] if tokens and tokens[-1].id is None and not tokens[-1].text else tokens


def _text(value: Any) -> str:
    """The text of a string, or of a list of parts."""
    if value is None or isinstance(value, str):
        return value or ""
    return "".join(_text(part.get("text")) for part in value if part.get("type", "text") == "text")


def _thinking(content: Any) -> str:
    """The reasoning among the parts of a content that is a list (Mistral)."""
    if not isinstance(content, list):
        return ""
    return "".join(_text(part.get("thinking")) for part in content if part.get("type") == "thinking")


def _usage(reported: Any, counted: Usage) -> Usage:
    """The upstream's usage. Weir's own count in `counted` replaces one that is missing or invalid."""
    usage = reported if isinstance(reported, Mapping) else {}
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        prompt_tokens=count_of(usage, "prompt_tokens", counted.prompt_tokens),
        completion_tokens=count_of(usage, "completion_tokens", counted.completion_tokens),
        cached_tokens=count_of(prompt, "cached_tokens", counted.cached_tokens),
        reasoning_tokens=count_of(completion, "reasoning_tokens", counted.reasoning_tokens),
    )
