"""An output that is taken back, as its client sees it (contract 8.3, 8.11)."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from engine.protocol import Channel, Delta, Engine, GenerationRequest, ModelInfo
from engine.protocol.demo import MODEL_DIR
from engine.text.tokenizer import LocalTokenizer
from tests.contract.case import Case, end, every_channel, everywhere, guard, said
from tests.helpers import ScriptedEngine, Teller

PARSERS = {"reasoning_parser": "mistral", "tool_call_parser": "hermes"}
AROUND: dict[Channel, tuple[list[str], list[str]]] = {
    "content": ([], []),
    "reasoning": (["[THINK]"], ["[/THINK]"]),
    "tool_call": (["<tool_call>", '{"name": "f", "arguments": ', '{"a":"'], ['"}', "}", "</tool_call>"]),
}
"""What a model says before and behind a text, for a parser to find the text's channel."""


class RewindableEngine(ScriptedEngine):
    """An engine that goes back. It says `good` where it may not say `zebra7`."""

    info = ModelInfo(max_model_len=1024, can_rewind=True)

    def __init__(self, channel: Channel, num_wrong: int = 1, good: str | None = "good") -> None:
        """`num_wrong`: how many words it tries before the `good` one. None: there is no good one."""
        before, behind = AROUND[channel]
        wrong = ["zebra7", "zebra77", "zebra777"][:num_wrong]
        right = [] if good is None else [good]
        places: list[Sequence[str]] = [*([one] for one in (*before, "So ")), [*wrong, *right]]
        places += [[one] for one in (" it is", *behind, "")]
        super().__init__(lambda request: [])
        self.teller = Teller(lambda told: places[len(told)])

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Delta, Any]:
        self.requests.append(request)
        answer = self.teller.generate(request)
        delta = await anext(answer)
        try:
            while True:
                rewind = yield delta
                delta = await answer.asend(rewind)
        except StopAsyncIteration:
            pass
        except GeneratorExit:
            self.aborted += 1
            raise


@every_channel(without="echo")
@pytest.mark.parametrize("num_wrong", [1, 3])
async def test_a_client_sees_one_unbroken_stream(case: Case, channel: Channel, num_wrong: int) -> None:
    """Contract 8.3: nothing of the withdrawn text, and usage counts it."""
    case.withholds("zebra7")
    engine = RewindableEngine(channel, num_wrong)
    answer = await case.answer(engine, guard("Rewinds", word="zebra7"), **PARSERS)
    assert answer.only.said(channel) == "So good it is"
    assert answer.only.finish == (
        "tool_calls" if channel == "tool_call" and case.endpoint.can("finish_tool_calls") else "stop"
    )
    assert len(engine.teller.rewinds) == num_wrong
    assert answer.usage is not None
    assert answer.usage[1] == engine.teller.num_generated
    words = engine.teller.words
    if case.endpoint.can("token_ids"):
        assert [words[i] for i in answer.only.ids] == engine.teller.said[0]


@every_channel(without="echo")
async def test_usage_of_released_tokens_leaves_out_the_withdrawn_ones(case: Case, channel: Channel) -> None:
    """Contract 6.1: with `usage: released`, a rewind leaves no trace in usage."""
    without = await case.answer(RewindableEngine(channel, 0), guard("Looks"), usage="released", **PARSERS)
    engine = RewindableEngine(channel, 3)
    answer = await case.answer(engine, guard("Rewinds", word="zebra7"), usage="released", **PARSERS)
    assert len(engine.teller.rewinds) == 3
    assert answer.usage == without.usage
    assert without.usage is not None
    assert without.usage[1] == len(engine.teller.said[0])


@everywhere("outputs")
async def test_an_output_is_taken_back_alone(case: Case) -> None:  # contract 8.3
    case.withholds("zebra7")
    answer = await case.answer(RewindableEngine("content"), guard("Rewinds", word="zebra7"), n=2)
    assert [(one.content, one.finish) for one in answer.outputs] == [("So good it is", "stop")] * 2


@everywhere()
async def test_a_rewind_goes_through_other_hooks(case: Case) -> None:  # contract 3.7, 8.3
    case.withholds("zebra7", "good")
    hooks = (guard("Rewinds", word="zebra7"), guard("Redacts", word="good"))
    answer = await case.answer(RewindableEngine("content"), *hooks)
    assert answer.only.content == "So [x] it is"


@every_channel(without="echo")
@pytest.mark.parametrize("num_wrong", [1, 3])
async def test_a_rewind_that_leaves_no_other_token_is_a_terminate(
    case: Case, channel: Channel, num_wrong: int
) -> None:  # contract 8.3
    case.withholds("zebra7")
    engine = RewindableEngine(channel, num_wrong, good=None)
    answer = await case.answer(engine, guard("Rewinds", word="zebra7"), **PARSERS)
    assert answer.only.said(channel) == case.ended(channel, "So ")
    assert answer.ended == ("content_filter", "no_secrets")
    assert answer.usage is not None
    assert answer.usage[1] == engine.teller.num_generated


@everywhere()
@pytest.mark.parametrize("mask", ["grammar", "allowed tokens"])
async def test_a_rewind_that_no_mask_leaves_another_token_for_is_a_terminate(
    case: Case, mask: str, demo: Engine
) -> None:  # contract 8.3
    """With the in-process engine. The log has no error."""
    (letter,) = LocalTokenizer.load(str(MODEL_DIR)).encode("a", add_special_tokens=False)
    fields = {
        "grammar": {"guided_choice": ["So zebra7 it is"]},
        "allowed tokens": {"allowed_token_ids": [letter], "max_tokens": 8},
    }[mask]
    word = {"grammar": "zebra7", "allowed tokens": "aa"}[mask]
    answer = await case.answer(demo, guard("Rewinds", word=word), max_rewinds=99, tools=[], **fields)
    assert answer.ended == ("content_filter", "no_secrets")
    assert answer.only.content.strip() == ("So" if mask == "grammar" else "")
    assert not [record for record in case.caplog.records if record.levelname == "ERROR"]


@everywhere()
@pytest.mark.parametrize("why", ["engine", "limit"])
async def test_a_rewind_that_cannot_be_is_a_terminate(case: Case, why: str) -> None:  # contract 8.3
    case.withholds("zebra7", "it is")
    if why == "limit":
        engine: Any = RewindableEngine("content", 3)
    else:
        engine = [*said("content", "So ", "zebra7", " it is"), end()]
    answer = await case.answer(engine, guard("Rewinds", word="zebra7"), max_rewinds=2)
    assert (answer.only.content, *answer.ended) == ("So ", "content_filter", "no_secrets")


@everywhere()
async def test_only_a_hook_that_says_so_may_rewind(case: Case) -> None:  # contract 8.11
    case.withholds("zebra7")
    answer = await case.answer(RewindableEngine("content"), guard("Nonsense", word="zebra7", answer="rewind"))
    assert answer.error is not None
    assert answer.error.kind == case.endpoint.guardrail_error


@everywhere()
async def test_streams_begin_again_after_a_rewind(case: Case) -> None:  # contract 8.11
    await case.answer(RewindableEngine("content"), guard("Rewinds", word="zebra7"), guard("Looks"))
    looks = case.hooks[1]
    assert [chunk.aborted for chunk in looks.finals] == [True, False]
    assert looks.finals[-1].text == "So good it is"
