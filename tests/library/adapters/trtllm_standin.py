"""Calls a hook as TensorRT-LLM does, and gives its client what TensorRT-LLM's formatters read.

Made of facts in `tensorrt_llm/executor/postprocessor_hook.py` and `result.py` (pull request 15239):

- A hook's class is found by a dotted path, and made without arguments.
- Each response has new tokens of one sequence. Then the hook is called for every output of the request.
- Streamed text is appended to the text that verdicts left. Whole text is decoded anew from all token ids.
- `emit` sets the text behind what was there before; `suppress` leaves it, and drops the new ids and logprobs;
  `terminate` sets the text, drops the new ids and logprobs, and ends the request.
- A verdict's action is compared by identity. An exception fails the request.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any

NAME = "tensorrt_llm.executor.postprocessor_hook"
PATH = "weir.adapters.trtllm.Hook"


class Action(Enum):
    EMIT = "emit"
    SUPPRESS = "suppress"
    TERMINATE = "terminate"


@dataclass
class Verdict:
    action: Action
    text: str = ""
    reason: str | None = None


@dataclass
class Chunk:
    request_id: int
    output_index: int
    text_diff: str
    text: str
    token_ids_diff: list[int]
    is_final: bool
    aborted: bool
    streaming: bool


def modules() -> dict[str, ModuleType]:
    """The package, for `sys.modules`."""
    made = {name: ModuleType(name) for name in ("tensorrt_llm", "tensorrt_llm.executor", NAME)}
    made[NAME].emit = lambda text: Verdict(Action.EMIT, text)  # type: ignore[attr-defined]
    made[NAME].suppress = lambda: Verdict(Action.SUPPRESS)  # type: ignore[attr-defined]
    made[NAME].terminate = lambda reason: Verdict(  # type: ignore[attr-defined]
        Action.TERMINATE, reason=reason
    )
    return made


def load() -> Callable[[Any], Any]:
    """The hook, as each owner makes it."""
    module, _, name = PATH.rpartition(".")
    hook: Callable[[Any], Any] = getattr(import_module(module), name)()
    return hook


def in_a_worker(path: str, requests: list[list[str]]) -> list[str]:
    """The texts of streamed requests, in a process for post-processing."""
    import os

    os.environ["WEIR_CONFIG"] = path
    sys.modules.update(modules())
    hook = load()
    return [Request(hook, number).stream([pieces])[0].text for number, pieces in enumerate(requests)]


@dataclass
class Output:
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | None = None
    text_before: int = 0
    ids_before: int = 0


@dataclass
class Given:
    """What the client has of an output."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | None = None


class Request:
    """One request. A token's id is its place in `vocabulary`."""

    def __init__(self, hook: Callable[[Any], Any], request_id: int, *, streaming: bool = True) -> None:
        self.hook, self.request_id, self.streaming = hook, request_id, streaming
        self.vocabulary: list[str] = []
        self.outputs: list[Output] = []
        self.given: list[Given] = []
        self.is_done = self.is_aborted = False

    def stream(self, sequences: Sequence[Sequence[str]], finish_reason: str = "stop") -> list[Given]:
        """Each item of a sequence is a chunk of one token. Sequences take turns, and the last chunk of all
        is the final one."""
        self._begin(len(sequences))
        turns = list(_in_turns(sequences))
        for number, (index, text) in enumerate(turns):
            self.respond(index, [text], number == len(turns) - 1, finish_reason)
            if self.is_done:
                break
        return self.given

    def whole(self, sequences: Sequence[Sequence[str]], finish_reason: str = "stop") -> list[Given]:
        """Each sequence comes at once, with all its tokens."""
        self._begin(len(sequences))
        for index, texts in enumerate(sequences):
            self.respond(index, texts, index == len(sequences) - 1, finish_reason)
            if self.is_done:
                break
        return self.given

    def _begin(self, num: int) -> None:
        self.outputs = [Output(index) for index in range(num)]
        self.given = [Given() for _ in range(num)]

    def respond(self, index: int, texts: Sequence[str], is_final: bool, finish_reason: str) -> None:
        new = range(len(self.vocabulary), len(self.vocabulary) + len(texts))
        self.vocabulary += texts
        sequence = self.outputs[index]
        sequence.ids_before = len(sequence.token_ids)
        sequence.token_ids += new
        sequence.logprobs += [-0.5] * len(new)
        self.is_done = is_final
        for output in self.outputs:
            output.text_before = len(output.text)
            if not self.streaming:
                output.text = "".join(self.vocabulary[i] for i in output.token_ids)
            elif output is sequence:
                output.text += "".join(texts)
            else:
                output.ids_before = len(output.token_ids)
            if is_final:
                output.finish_reason = finish_reason
        self._ask(is_final)
        if self.streaming or self.is_done:
            self._give()

    def _ask(self, is_final: bool) -> None:
        for output in self.outputs:
            before = output.text[: output.text_before]
            verdict = self.hook(
                Chunk(
                    self.request_id,
                    output.index,
                    output.text[output.text_before :],
                    output.text,
                    output.token_ids[output.ids_before :],
                    is_final,
                    self.is_aborted,
                    self.streaming,
                )
            )
            if verdict.action is Action.EMIT:
                output.text = before + verdict.text
                continue
            output.text = before
            self._drop(output)
            if verdict.action is Action.TERMINATE:
                output.text += verdict.text
                output.finish_reason, output.stop_reason = "stop", verdict.reason
                self.is_aborted = self.is_done = True

    def _drop(self, output: Output) -> None:
        if self.streaming:
            output.ids_before = len(output.token_ids)
        else:
            del output.token_ids[output.ids_before :], output.logprobs[output.ids_before :]

    def _give(self) -> None:
        for output, given in zip(self.outputs, self.given, strict=True):
            start, first = (output.text_before, output.ids_before) if self.streaming else (0, 0)
            given.text += output.text[start:]
            given.token_ids += output.token_ids[first:]
            given.logprobs += output.logprobs[first:]
            given.finish_reason, given.stop_reason = output.finish_reason, output.stop_reason
            output.ids_before = len(output.token_ids)


def _in_turns(sequences: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
    for place in range(max(map(len, sequences))):
        yield from ((index, texts[place]) for index, texts in enumerate(sequences) if place < len(texts))
