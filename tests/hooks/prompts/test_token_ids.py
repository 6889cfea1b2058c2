"""Prompts of token ids are shown to hooks as text, and go to the engine as ids again."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import pytest

from engine.protocol import Delta, GenerationRequest, Prompt, RequestError
from hooks import emit, prompt_texts, refuse, with_prompt_texts
from hooks.loading.loader import LoadedHook
from hooks.pipeline.admission import RefusedError
from hooks.pipeline.pipeline import Pipeline
from hooks.prompts.token_ids import UNREADABLE
from hooks.testing.play import vetted
from tests.helpers import Script, Source, make_request, opened, pipeline_of


class CharacterTokenizer:
    """A character's id is its code point; the id of a special token, which begins a text, is 0."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [0, *map(ord, text)] if add_special_tokens else [*map(ord, text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


TOKENIZER = CharacterTokenizer()


class Reader(Script):
    def __init__(self) -> None:
        super().__init__(lambda chunk: emit(chunk.pending))
        self.shown: list[list[str]] = []

    def on_request(self, request: GenerationRequest) -> object:
        self.shown.append([text.text for text in prompt_texts(request)])
        if any("refuse" in text for text in self.shown[-1]):
            return refuse("why")
        return with_prompt_texts(request, lambda text: text.text.replace("secret", "[x]"))


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


async def ask(
    pipeline: Pipeline, *prompts: Prompt, tokenizer: CharacterTokenizer | None = TOKENIZER
) -> tuple[Prompt, ...]:
    """The prompts that the engine is asked for."""
    request = replace(make_request(messages=(), prompts=prompts), endpoint="completions")
    source = Source([Delta(text="a", index=i, finish_reason="stop") for i in range(len(prompts))])
    async with opened(pipeline, request) as guard:
        async with aclosing(vetted(guard, source, cast(Any, tokenizer))) as released:
            assert len([delta async for delta in released]) >= len(prompts)
    return source.requests[0].prompts


async def test_hooks_read_them_as_text_and_what_they_leave_goes_on_with_its_own_ids() -> None:  # contract 8.9
    reader = Reader()
    prompts = await ask(pipeline_of(reader), ids("ab"), "cd", (0, 97))
    assert reader.shown == [["ab", "cd", "\0a"]]
    assert prompts == (ids("ab"), "cd", (0, 97))
    assert {chunk.request.prompts for chunk in reader.chunks} == {("ab", "cd", "\0a")}


async def test_what_was_rewritten_goes_on_as_the_ids_of_its_text() -> None:  # contract 8.9
    prompts = await ask(pipeline_of(Reader()), ids("a secret"), "a secret", ids("b"))
    assert prompts == (ids("a [x]"), "a [x]", ids("b"))


async def test_they_can_be_refused() -> None:
    with pytest.raises(RefusedError):
        await ask(pipeline_of(Reader()), ids("refuse"))


async def test_without_a_tokenizer_nobody_could_read_them_so_they_are_refused() -> None:  # contract 8.9
    assert await ask(pipeline_of(Reader()), "ab", tokenizer=None) == ("ab",)
    with pytest.raises(RequestError) as caught:
        await ask(pipeline_of(Reader()), "ab", ids("cd"), tokenizer=None)
    assert (caught.value.param, caught.value.status) == ("prompt", 400)


async def test_hooks_that_read_no_prompts_leave_them_alone() -> None:  # contract 8.9
    hook = Script(lambda chunk: emit(chunk.pending))
    assert await ask(pipeline_of(hook), ids("ab"), tokenizer=None) == (ids("ab"),)
    assert {chunk.request.prompts for chunk in hook.chunks} == {(ids("ab"),)}


async def test_a_shadow_hook_has_no_effect_on_what_it_cannot_read() -> None:  # contract 3.10
    reader = Reader()
    pipeline = Pipeline([LoadedHook.of("shadow", reader, is_shadow=True)])
    assert await ask(pipeline, ids("ab"), tokenizer=None) == (ids("ab"),)
    assert await ask(pipeline, ids("refuse")) == (ids("refuse"),)
    assert reader.shown == [["refuse"]]


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_prompt_in_a_form_that_nobody_could_read_is_refused(name: str) -> None:  # contract 8.9
    request = make_request(extra={name: [1, 2]})
    async with opened(pipeline_of(Reader()), request) as guard:
        with pytest.raises(RequestError) as caught:
            [delta async for delta in vetted(guard, Source([]))]
    assert caught.value.param == name


async def test_ids_that_no_tokenizer_takes_are_the_callers_fault() -> None:
    class Narrow(CharacterTokenizer):
        def decode(self, ids: Sequence[int]) -> str:
            return "".join(chr(i.to_bytes(2, "big")[1]) for i in ids)

    with pytest.raises(RequestError) as caught:
        await ask(pipeline_of(Reader()), (2**40,), tokenizer=Narrow())
    assert caught.value.param == "prompt"
