"""Hooks for these tests, named by import path as a deployment names its own."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from hooks import (
    Chunk,
    Decision,
    GenerationRequest,
    PromptTooLongError,
    Usage,
    Verdict,
    ask,
    emit,
    hold,
    prompt_texts,
    redact,
    refuse,
    rewind,
    suppress,
    suspect,
    terminate,
    with_prompt_texts,
)
from hooks.detect.coverage import Judged
from hooks.detect.detector import Match
from hooks.detect.model_guard import ModelGuard

SELF_TEST = "weir-self-test"


class Looks:
    """Lets all text through, and remembers the chunks of clients' requests."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.request_id != SELF_TEST:
            self.chunks.append(chunk)
        return emit(chunk.pending)

    @property
    def finals(self) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.is_final]


class Holds(Looks):
    """Holds the last `n` characters until the end; None: all."""

    def __init__(self, n: int | None = None) -> None:
        super().__init__()
        self.n = n

    def __call__(self, chunk: Chunk) -> Verdict:
        super().__call__(chunk)
        pending = chunk.pending
        return (
            emit(pending)
            if chunk.is_final
            else hold(min(len(pending) if self.n is None else self.n, len(pending)))
        )


class AtWord:
    """Acts where a stream has `word`. It holds text that may become the word."""

    def __init__(self, word: str, *, channel: str | None = None) -> None:
        self.word = word
        self.channel = channel

    def __call__(self, chunk: Chunk) -> Verdict:
        pending = chunk.pending
        if self.channel not in (None, chunk.channel):
            return emit(pending)
        place = pending.find(self.word)
        return self.otherwise(chunk) if place < 0 else self.act(chunk, place)

    def otherwise(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.is_final else hold(self.num_undecided(chunk.pending))

    def num_undecided(self, text: str) -> int:
        return max(n for n in range(len(self.word)) if text.endswith(self.word[:n]))

    def act(self, chunk: Chunk, place: int) -> Verdict:
        raise NotImplementedError


class Redacts(AtWord):
    """Puts `[x]` in the word's place."""

    def act(self, chunk: Chunk, place: int) -> Verdict:
        spans, end = [], 0
        while place >= 0:
            end = place + len(self.word)
            spans.append((place, end, "[x]"))
            place = chunk.pending.find(self.word, end)
        return redact(spans, hold=0 if chunk.is_final else self.num_undecided(chunk.pending[end:]))


class Rewrites(AtWord):
    """Says the pending text with `[x]` in the word's place."""

    def act(self, chunk: Chunk, place: int) -> Verdict:
        return emit(chunk.pending.replace(self.word, "[x]"))


class Suppresses(AtWord):
    """Withholds the pending text, from the word's first letter on."""

    def act(self, chunk: Chunk, place: int) -> Verdict:
        return suppress("no_secrets")


class Ends(AtWord):
    """Terminates in front of the word."""

    def __init__(self, word: str, *, text: str | None = None, scope: Any = "request", **more: Any) -> None:
        super().__init__(word, **more)
        self.text = text
        self.scope = scope

    def act(self, chunk: Chunk, place: int) -> Verdict:
        return terminate("no_secrets", after=place, text=self.text, scope=self.scope)


class Suspects(AtWord):
    """Finds a stream with the word suspect."""

    def act(self, chunk: Chunk, place: int) -> Verdict:
        return suspect("odd")


class Asks(AtWord):
    """Has a person decide on a call with the word."""

    def __init__(self, word: str, *, text: str | None = "[refused]", **more: Any) -> None:
        super().__init__(word, **more)
        self.text = text

    def act(self, chunk: Chunk, place: int) -> Verdict:
        return ask("odd", text=self.text)


class Judge:
    """Objects to the word. It judges no text that may become the word."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.text = ""

    async def judge(self, text: str, is_final: bool) -> Judged:
        if text == "fails":
            raise RuntimeError(text)
        self.text += text
        place = self.text.find(self.word)
        if place >= 0:
            return Judged(len(self.text), Match(place, place + len(self.word), "no_secrets"))
        beginnings = [n for n in range(len(self.word)) if self.text.endswith(self.word[:n])]
        return Judged(len(self.text) - (0 if is_final else max(beginnings)))

    def close(self) -> None:
        pass


class Judges(ModelGuard):
    """Is a model that knows one word."""

    def __init__(self, word: str, *, releases: bool = False, **options: Any) -> None:
        super().__init__(mode="release" if releases else "hold", **options)
        self.word = word

    def open_judge(self, chunk: Chunk) -> Judge:
        return Judge(self.word)


class Rewinds(AtWord):
    """Has the model go on otherwise in front of the word."""

    may_rewind = True

    def act(self, chunk: Chunk, place: int) -> Verdict:
        return rewind("no_secrets", after=place)


class Raises(AtWord):
    """Raises an exception whose message has the text."""

    def act(self, chunk: Chunk, place: int) -> Verdict:
        raise ValueError(f"I saw {chunk.text}")


class CannotRead(AtWord):
    """Raises the error for a prompt that is too long."""

    def act(self, chunk: Chunk, place: int) -> Verdict:
        raise PromptTooLongError(f"I saw {chunk.text}")


class Dies(AtWord):
    """Ends its process."""

    def act(self, chunk: Chunk, place: int) -> Verdict:
        os._exit(3)


class Hangs(AtWord):
    """Never answers."""

    async def __call__(self, chunk: Chunk) -> Verdict:  # type: ignore[override]
        if self.word in chunk.pending:
            await asyncio.Event().wait()
        return self.otherwise(chunk)


class Nonsense(AtWord):
    """Answers with what is no verdict."""

    def __init__(self, word: str, answer: str, **more: Any) -> None:
        super().__init__(word, **more)
        self.answer = answer

    def act(self, chunk: Chunk, place: int) -> Any:
        return {
            "none": None,
            "text": chunk.pending,
            "out of range": redact([(place, len(chunk.pending) + 1, "")]),
            "overlap": redact([(place, place + 2, ""), (place + 1, place + 3, "")]),
            "rewind": rewind("it may not"),
        }[self.answer]


class HoldsAtTheEnd:
    """Holds text on a final chunk, where nothing is left to wait for."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.request_id == SELF_TEST else hold()


class WithoutAlternatives:
    """Lets all text through, and no alternatives of its tokens."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending, alternatives=False)


class SuppressesAtTheEnd:
    """Holds all, and withholds it at the last text; an empty rest it lets through."""

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.pending.endswith("}"):
            return suppress()
        return emit(chunk.pending) if chunk.is_final else hold()


class Nothing:
    """Withholds all of a channel, or the calls of one tool."""

    def __init__(self, channel: str, tool_name: str | None = None) -> None:
        self.channel = channel
        self.tool_name = tool_name

    def __call__(self, chunk: Chunk) -> Verdict:
        is_it = chunk.channel == self.channel and self.tool_name in (None, chunk.tool_name)
        return suppress() if is_it else emit(chunk.pending)


class NoAlternatives(Looks):
    """Lets text through by one kind of verdict, or ends at the second chunk, without alternatives."""

    def __init__(self, verdict: str) -> None:
        super().__init__()
        self.verdict = verdict

    def __call__(self, chunk: Chunk) -> Verdict:
        pending = chunk.pending
        if self.verdict == "hold":
            return hold(0 if chunk.is_final else min(2, len(pending)), alternatives=False)
        if self.verdict == "redact" or len(chunk.text) == len(chunk.text_diff):
            return redact([], alternatives=False)
        return terminate("no_secrets", after=0, alternatives=False)


class Shouts:
    """Says everything in capital letters."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending.upper())


class Listens:
    """Remembers every decision, and what the client had of the answer by then."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    def on_decision(self, decision: Decision) -> None:
        self.decisions.append(decision)


class FailsToListen(Listens):
    def on_decision(self, decision: Decision) -> None:
        raise ValueError(decision.withheld)


class CountsTokens(Looks):
    """Writes each request's tokens to a file, which another process can read, with the number of last calls
    before."""

    def __init__(self, *, file: str, raises: bool = False) -> None:
        super().__init__()
        self.file = Path(file)
        self.raises = raises
        self.ended: list[str] = []

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.is_final:
            self.ended.append(chunk.request_id)
        return super().__call__(chunk)

    def on_usage(self, request: GenerationRequest, usage: Usage) -> None:
        counts = self.ended.count(request.request_id), usage.prompt_tokens, usage.completion_tokens
        with self.file.open("a") as file:
            print(request.endpoint, *counts, file=file)
        if self.raises:
            raise ValueError("quartz")


class Reads(Looks):
    """Reads prompts: refuses `hunter2`, with an answer if the prompt says please, and renames `bluebird`."""

    def __init__(self, *, text: str | None = None, raises: bool = False) -> None:
        super().__init__()
        self.text = text
        self.raises = raises

    def on_request(self, request: GenerationRequest) -> Any:
        texts = " ".join(one.text for one in prompt_texts(request))
        if "hunter2" in texts:
            if self.raises:
                raise ValueError(texts)
            return refuse("no_passwords", self.text)
        return with_prompt_texts(request, lambda one: one.text.replace("bluebird", "[name]"))


class ChangesTheModel(Looks):
    """Changes a field of the request that no hook may change."""

    def on_request(self, request: GenerationRequest) -> Any:
        return request if request.request_id == SELF_TEST else replace(request, model="another")


class SeesPrompts(Looks):
    """Remembers the prompt and the answer of the last request."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = self.answer = ""
        self.restored: list[str] = []

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        self.prompt = " ".join(text.text for text in prompt_texts(request))
        return request

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.request_id != SELF_TEST:
            self.answer += chunk.text_diff
            self.restored += [chunk.text_diff[start:end] for start, end in chunk.restored_diff]
        return super().__call__(chunk)


class Remembers:
    """Says at the end of the content what it noted of the prompt, and how often it was asked."""

    def __init__(self, word: str) -> None:
        self.word = word

    def on_request(self, request: GenerationRequest, state: dict[str, Any]) -> GenerationRequest:
        texts = [text.text for text in prompt_texts(request)]
        state["noted"] = next((text for text in texts if text in ("one", "two")), "")
        state["times"] = state.get("times", 0) + 1
        return request

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.channel != "content" or not chunk.is_final:
            return emit(chunk.pending)
        state = chunk.request_state
        return emit(f"{chunk.pending}[{self.word}:{state['times']}:{state['noted']}]")


class SaysTaint:
    """Says in front of the content what the request is marked with."""

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        if chunk.channel == "content" and text and not chunk.state:
            chunk.state["said"] = True
            return emit(f"{chunk.request.taint}: {text}")
        return emit(text)


class Recalls(Looks):
    """Remembers the last request as its hooks are shown it."""

    def __init__(self) -> None:
        super().__init__()
        self.request: GenerationRequest | None = None

    def on_request(self, request: GenerationRequest) -> GenerationRequest:
        if request.request_id != SELF_TEST:
            self.request = request
        return request
