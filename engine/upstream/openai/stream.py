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
from engine.upstream.openai.template import TextTemplate
from engine.upstream.openai.tokens import TokenAligner, TokenReader, checked_ids, is_id, own_tokens
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
        num_prompt_tokens = 0
        for prompt in request.prompts:
            num_prompt_tokens += 0 if isinstance(prompt, str) else len(prompt)
        self._count = UsageCount(Usage(num_prompt_tokens, completion_tokens=0, is_estimated=True))
        asks_for_prompt = request.sampling.prompt_logprobs is not None
        prompts = PromptReader(request.num_prompt_logprobs or 0) if asks_for_prompt else None
        self._outputs: list[_Output] = []
        for index in range(request.num_outputs):
            self._outputs.append(_Output(request, index, self._count, most, prompts))
        self._only = self._outputs[0] if len(self._outputs) == 1 else None
        self.is_finished = False
        """Whether every output has its finish reason."""
        self._last: Delta | None = None
        self._template = TextTemplate(self._outputs[0].count)
        self.alike: TranslateAlike | None = None

    def feed(self, chunk: Mapping[str, Any], data: bytes | None = None) -> list[Delta]:
        """Translate a chunk (parsed JSON). `data`: its JSON, to know chunks like it. Raises `EngineError` if
        the upstream says that it gave up, and `TooMuchError` if an output is longer than it may be."""
        choices: Sequence[Any] = chunk.get("choices") or ()
        if self._only is not None and len(choices) == 1:  # the usual event; its index may be a counter
            deltas = self._only.feed(choices[0], chunk)
            if data is not None and self._only.is_plain:
                self._template.learn(data, chunk)
        else:
            deltas = self._feed_all(choices, chunk)
        self.alike = self._template.delta_of if self._only is not None and self._only.is_plain else None
        # vLLM: with several outputs, the usage in the event of a choice counts this choice only.
        if (usage := chunk.get("usage")) and not (choices and self._only is None):
            self._count.usage = _usage(usage, self._count.usage)
            deltas = [replace(delta, usage=self._count.usage) for delta in deltas]
        if deltas and deltas[-1].finish_reason is not None:
            self._keep_last(deltas)
        return deltas

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
        if deltas:
            self._keep_last(deltas)
        if self._last is not None:
            deltas.append(replace(self._last, usage=self._count.usage))
        return deltas

    def _keep_last(self, deltas: list[Delta]) -> None:
        """Keep the last of the deltas, which ends an output, if it ends the answer."""
        for output in self._outputs:
            if not output.is_finished:
                return
        self.is_finished = True
        self._last = deltas.pop()


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
        self.is_plain = False
        """Whether text without tokens continues the content as it comes."""
        self.count = OutputCount(request, prompt, most, count)
        self._sampling = request.sampling
        self._index = index
        self._channel: Channel = "content"
        self._halves = HalfCharacters()
        self._has_reasoning = self._has_content = self._has_calls = False
        """Whether a delta has had such a part."""
        # Most outputs have no tokens and no calls. Their readers are made when the first ones come.
        self._tokens: TokenReader | None = None
        self._aligner: TokenAligner | None = None
        self._is_bare = False
        """Whether rule 5 of `tokens` holds. Then all text passes as it comes."""
        self._calls: ToolCalls | None = None
        self._prompts = prompts
        self._prompt = prompt if request.prompts else None
        self._prompt_token_ids = None if isinstance(prompt, str) else prompt
        is_echoed = request.echo and asks_for_echo(request)
        self._has_own_echo = request.echo and not is_echoed
        # An echoed text is recognized by its text, echoed ids are recognized by their number.
        self._echo_text = prompt if is_echoed and isinstance(prompt, str) else ""
        self._echo_ids = prompt if is_echoed and not isinstance(prompt, str) else ()
        self._num_echoed = 0
        self._waiting = ""

    def feed(self, choice: Mapping[str, Any], chunk: Mapping[str, Any]) -> list[Delta]:
        if self.is_finished:
            return []
        deltas: list[Delta] = []
        if not self.has_begun:
            if prompt_token_ids := choice.get("prompt_token_ids") or chunk.get("prompt_token_ids"):
                self._prompt_token_ids = tuple(checked_ids(prompt_token_ids))
            if self._prompts is not None or self._has_own_echo:
                deltas = self._read_prompt(choice)
            self.has_begun = True
        tokens: Sequence[Token] = ()
        if choice.get("logprobs") or choice.get("token_ids"):
            tokens = self._read_tokens(choice)
        segments = self._segments(choice) or [(self._channel, None, "")]
        for number, segment in enumerate(segments, start=1):
            self._put(deltas, segment, tokens, more=number < len(segments))
            tokens = ()
        if reason := choice.get("finish_reason"):
            if reason in _FAILURES:
                raise stream_broke()
            return self.end(reason, choice.get("stop_reason", choice.get("matched_stop")), deltas)
        if self._calls is not None:
            deltas = self._calls.in_order(deltas)
        if self._prompt_token_ids is not None:
            deltas = self._begun(deltas)
        is_content = self._is_bare and self._channel == "content" and self._prompt_token_ids is None
        self.is_plain = is_content and not (self._halves or (self._calls and self._calls.in_call))
        return deltas

    def end(self, reason: str | None, stop_reason: str | int | None, deltas: list[Delta]) -> list[Delta]:
        """`deltas`, then the rest of the output. The last delta has the finish reason."""
        self.is_finished, self.is_plain = True, False
        reason = reason and str(reason).lower()
        finish_reason: FinishReason = "tool_calls" if self._calls else "stop"
        if reason:
            finish_reason = _FINISH_REASONS.get(reason, "stop")
        if self._halves or self._waiting or self._calls:
            for segment in self._last_segments(is_cut=finish_reason in ("length", "content_filter")):
                self._put(deltas, segment)
        if self._aligner is not None:
            text, tokens = self._aligner.flush()
            has_stop_id = self._sampling.stop_token_ids and reason != "length"
            if has_stop_id and tokens and tokens[-1].id is None and not tokens[-1].text:
                tokens = tokens[:-1]  # it may be the stop id's: the upstream does not say ids
            self._release(deltas, text, tokens)
        if self._calls is not None:
            deltas = self._calls.in_order(deltas, is_last=True)
        deltas = deltas or [self._delta("content", "")]
        # Any text but the caller's own stop strings could be output that no hook has seen.
        is_own = stop_reason is not None and (stop_reason in self._sampling.stop or is_id(stop_reason))
        deltas[-1] = replace(
            deltas[-1],
            finish_reason=finish_reason,
            stop_reason=stop_reason if is_own else None,
            is_cut=reason not in _OWN_ENDS,
        )
        return self._begun(deltas) if self._prompt_token_ids is not None else deltas

    def _begun(self, deltas: list[Delta]) -> list[Delta]:
        """The first delta has the ids of the prompt."""
        if deltas:
            deltas[0] = replace(deltas[0], prompt_token_ids=self._prompt_token_ids)
            self._prompt_token_ids = None
        return deltas

    def _read_prompt(self, choice: Mapping[str, Any]) -> list[Delta]:
        """The prompt, if the caller wants its logprobs, or if the upstream does not echo it."""
        if self._prompts is None:
            return [self._delta("echo", self._prompt)] if isinstance(self._prompt, str) else []
        entries = choice.get("prompt_logprobs")
        return [self._delta("echo", *self._prompts.read(entries, self._prompt_token_ids, self._prompt))]

    def _read_tokens(self, choice: Mapping[str, Any]) -> list[Token]:
        if self._tokens is None:
            self._tokens = TokenReader(self._sampling.logprobs, self._echo_ids)
        tokens = self._tokens.read(choice)
        ends_early = choice.get("finish_reason") not in (None, "", "length")
        if ends_early and tokens and tokens[-1].id in self._sampling.stop_token_ids:
            tokens.pop()  # it may have text, and this text, like a stop string, is not shown to guards
        return tokens

    def _segments(self, choice: Mapping[str, Any]) -> list[Segment]:
        """The texts of a choice.

        A whole message continues the answer, but for the parts that a delta has had: it repeats those.
        """
        delta, is_whole = choice.get("delta") or {}, False
        if (message := choice.get("message")) and not any(map(delta.get, _TEXT_FIELDS)):
            delta, is_whole = message, True
        content = delta.get("content") or delta.get("refusal")
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if not reasoning and isinstance(content, list):  # Mistral
            thoughts = [part.get("thinking") for part in content if part.get("type") == "thinking"]
            reasoning = "".join(map(_text, thoughts))
        calls = delta.get("tool_calls") or delta.get("function_call")
        segments: list[Segment] = []
        if reasoning and not (is_whole and self._has_reasoning):
            self._has_reasoning = not is_whole
            text = reasoning if isinstance(reasoning, str) else _text(reasoning)
            segments.append(("reasoning", None, self._halves.join("reasoning", text)))
        if content and not (is_whole and self._has_content):
            self._has_content = not is_whole
            text = content if isinstance(content, str) else _text(content)
            segments.append(("content", None, self._halves.join("content", text)))
        if calls and not (is_whole and self._has_calls):
            self._has_calls = not is_whole
            if self._calls is None:
                self._calls = ToolCalls(self.count)
            segments += self._calls.feed(delta, are_whole=is_whole)
        if (given := choice.get("text")) is not None and (text := _text(given)):
            segments += self._without_echo(self._halves.join("text", text))
        return segments

    def _last_segments(self, *, is_cut: bool) -> Iterator[Segment]:
        """The text that waits at the end."""
        for channel in ("reasoning", "content"):
            if half := self._halves.end(channel):
                yield channel, None, half
        yield from self._without_echo(self._halves.end("text"))
        if self._waiting:
            yield "content", None, self._waiting
        if self._calls is not None:
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

    def _put(
        self, deltas: list[Delta], segment: Segment, tokens: Sequence[Token] = (), *, more: bool = False
    ) -> None:
        """Add to `deltas` the text of a segment that is settled, with its tokens. `more`: more segments
        follow for these tokens."""
        channel, call, text = segment
        aligner = self._aligner
        # The upstream's parser made a call's text from other text: no token has it.
        if channel == "tool_call" or (aligner is not None and aligner.waits and channel != self._channel):
            if aligner is not None:
                self._release(deltas, aligner.mute(), ())
            self._aligner = aligner = None
            self._is_bare = True
        if channel == "tool_call":
            self._channel = "content"
            if call is not None:
                deltas.append(self._delta("tool_call", text, call=call))
            return
        self._channel = channel
        if aligner is None and tokens and not self._is_bare:
            self._aligner = aligner = TokenAligner(self._sampling.stop)
        if aligner is not None:
            text, settled = aligner.feed(tokens, text, more=more)
            self._release(deltas, text, settled)
            if aligner.is_bare:
                self._aligner, self._is_bare = None, True
        elif text:
            self._is_bare = True
            is_told = tokens and self._num_echoed == len(self._echo_ids)
            deltas.append(self._delta(channel, text, own_tokens(tokens, text) if is_told else ()))

    def _release(self, deltas: list[Delta], text: str, tokens: tuple[Token, ...]) -> None:
        """Add text with its tokens, and separate the echoed ids' from the output's."""
        if not tokens:
            if text:
                deltas.append(self._delta(self._channel, text))
            return
        echo = tokens[: len(self._echo_ids) - self._num_echoed]
        echo_text = "".join(token.text for token in echo)
        rest = tokens[len(echo) :]
        if rest and not echo_text and not self._num_echoed:
            echo, rest = (), tokens  # prompt and output came in one piece
            self._num_echoed = len(self._echo_ids)
        self._num_echoed += len(echo)
        if echo:
            deltas.append(self._delta("echo", echo_text, echo))
        if rest:
            deltas.append(self._delta(self._channel, text[len(echo_text) :] if echo else text, rest))

    def _delta(
        self, channel: Channel, text: str, tokens: tuple[Token, ...] = (), call: ToolCall | None = None
    ) -> Delta:
        num_tokens = 0 if channel == "echo" else len(tokens) or bool(text)
        # `ToolCalls` counts arguments when they come.
        num_chars, num_pieces = (0, 0) if channel == "tool_call" else (len(text), num_tokens)
        usage = self.count.add(channel, num_chars, num_pieces, num_tokens)
        return Delta(self._index, text, tokens, channel, call, usage=usage)


def _text(value: Any) -> str:
    """The text of a string, or of a list of parts."""
    if value is None or isinstance(value, str):
        return value or ""
    return "".join(_text(part.get("text")) for part in value if part.get("type", "text") == "text")


def _usage(reported: Any, counted: Usage) -> Usage:
    """The upstream's usage. Weir's own count in `counted` replaces one that is missing or invalid."""
    usage = reported if isinstance(reported, dict) else {}
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        prompt_tokens=count_of(usage, "prompt_tokens", counted.prompt_tokens),
        completion_tokens=count_of(usage, "completion_tokens", counted.completion_tokens),
        cached_tokens=count_of(prompt, "cached_tokens", counted.cached_tokens),
        reasoning_tokens=count_of(completion, "reasoning_tokens", counted.reasoning_tokens),
        is_estimated=any(count_of(usage, name, -1) < 0 for name in ("prompt_tokens", "completion_tokens")),
    )
