"""The echo of a chat: when there is one, and where it stands."""

from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from engine.protocol import Delta, Deltas, GenerationRequest, PromptScores, Rewind
from engine.streams.feeding import feed_all, feed_given, iterated
from engine.streams.flow import StagedFlow
from engine.streams.rewindable import Rewindable
from engine.text.chat_echo import ChatEcho, echoed_text
from tests.engine.streams.stages import Answer
from tests.helpers import make_deltas, make_request

SCORES = PromptScores((), ((0.5,),))
SAID = {"role": "assistant", "content": "Once upon"}
ASKED = {"role": "user", "content": "Go on"}


def chat(*messages: dict[str, Any], n: int = 1, **extra: Any) -> GenerationRequest:
    return make_request(n=n, messages=messages, echo=True, extra=extra)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (chat(ASKED, SAID), "Once upon"),
        (chat(SAID, ASKED), ""),
        (chat(SAID, ASKED, add_generation_prompt=True), ""),
        (chat(ASKED, continue_final_message=True), "Go on"),
        (chat(ASKED, add_generation_prompt=False), "Go on"),
        (chat({"role": "assistant", "content": None}), ""),
        (chat({"role": "assistant"}), ""),
        (chat({"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "x"}, "b"]}), "a\nb"),
    ],
)
def test_the_last_message_is_echoed_if_the_answer_has_its_role(
    request_: GenerationRequest, text: str
) -> None:
    assert echoed_text(request_) == text


async def test_each_output_begins_with_the_echo_and_the_ids_of_the_prompt() -> None:
    deltas = [
        Delta(index=0, text="a", prompt_token_ids=(1, 2), prompt_scores=SCORES),
        Delta(index=1, text="b", prompt_token_ids=(1, 2), prompt_scores=SCORES),
        Delta(index=1, finish_reason="stop"),
        Delta(index=0, finish_reason="stop"),
    ]
    echo = ChatEcho(echoed_text(chat(SAID, n=2)))
    await StagedFlow(partial(feed_given, deltas), [echo]).run(answer := Answer())
    first, second, third, fourth, *rest = answer.deltas
    assert first == Delta(
        index=0, text="Once upon", channel="echo", prompt_token_ids=(1, 2), prompt_scores=SCORES
    )
    assert third == Delta(
        index=1, text="Once upon", channel="echo", prompt_token_ids=(1, 2), prompt_scores=SCORES
    )
    assert [second, fourth] == [Delta(index=0, text="a"), Delta(index=1, text="b")]
    assert rest == deltas[2:]


def test_a_chat_that_asks_for_none_and_a_completion_have_none() -> None:
    assert echoed_text(make_request(messages=(SAID,))) == ""
    assert echoed_text(make_request(prompts=("Once upon",), echo=True)) == ""


async def test_a_rewind_reaches_the_engine_and_the_echo_comes_again() -> None:  # contract 8.3
    told: list[object] = []

    async def engine() -> Deltas:
        told.append((yield make_deltas(["x"], finish=False)[0]))
        told.append((yield make_deltas(["y"])[0]))
        yield Delta(finish_reason="stop")

    stages = [ChatEcho(echoed_text(chat(SAID))), Rewindable()]
    async with aclosing(iterated(StagedFlow(partial(feed_all, engine()), stages))) as deltas:
        assert [(await anext(deltas)).text, (await anext(deltas)).text] == ["Once upon", "x"]
        again = await deltas.asend(Rewind(0, 0))
        assert (again.channel, again.text) == ("echo", "Once upon")
        assert (await anext(deltas)).text == "y"
    assert told == [Rewind(0, 0)]
