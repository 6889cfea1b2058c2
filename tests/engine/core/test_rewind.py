"""An output is rewound to an earlier token and continues differently. Seeds, grammars, stop strings and other
sequences are as if nothing had happened (contract 8.3)."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import Delta, GenerationRequest, Rewind, Token
from engine.protocol.options import LogitsProcessorConfig
from engine.streams.feeding import iterated
from engine.streams.flow import StagedFlow
from engine.streams.recorder import RecordingEngine
from engine.streams.recording import Recording
from engine.streams.rewindable import Rewindable
from tests.engine.sampling.logits_processors.processors import ALL, named

Complete = Callable[..., GenerationRequest]
Start = Callable[..., Awaitable[Any]]
NO_REPEAT = LogitsProcessorConfig("no_repeat_ngram", "no_repeat_ngram")
Plan = Callable[[Delta, list[Token]], Rewind | None]
"""Returns the answer to a delta, given the tokens of its output that are kept so far."""

PROMPT = (20, 30, 40, 50, 60, 70)
ONLY = 22
"""The only token that some outputs have."""


@pytest.fixture(params=[False, True], ids=["in turn", "ahead"])
async def engine(request: pytest.FixtureRequest, start_engine: Start) -> Any:
    return await start_engine(async_scheduling=request.param)


async def play(engine: Any, request: GenerationRequest, plan: Plan) -> tuple[dict[int, list[Token]], Delta]:
    """The final tokens of each output, and the last delta."""
    outputs: dict[int, list[Token]] = {}
    async with aclosing(engine.generate(request)) as stream:
        rewind: Rewind | None = None
        with suppress(StopAsyncIteration):
            while True:
                last = await stream.asend(rewind)
                tokens = outputs.setdefault(last.index, [])
                tokens += last.tokens
                if (rewind := plan(last, tokens)) is not None:
                    del tokens[rewind.num_tokens :]
    return outputs, last


def once(index: int, at_least: int, rewind: Rewind) -> Plan:
    """Sends the rewind once, when the output has `at_least` tokens."""
    sent: list[Rewind] = []

    def plan(delta: Delta, tokens: list[Token]) -> Rewind | None:
        if sent or delta.index != index or len(tokens) < at_least:
            return None
        sent.append(rewind)
        return rewind

    return plan


def ids_of(tokens: list[Token]) -> list[int | None]:
    return [token.id for token in tokens]


async def expected(engine: Any, length: int, keep: int, banned: tuple[int, ...] | None = None) -> list[int]:
    """A greedy output of `PROMPT` after a rewind to `keep` tokens, found without a rewind."""
    (whole,) = await engine.complete(PROMPT, max_tokens=length, ignore_eos=True)
    kept = whole.ids[:keep]
    bias = dict.fromkeys(banned if banned is not None else whole.ids[keep : keep + 1], -1000.0)
    (other,) = await engine.complete(PROMPT + tuple(kept), max_tokens=1, logit_bias=bias, ignore_eos=True)
    start = [*kept, *other.ids]
    if len(start) == length:
        return start
    (rest,) = await engine.complete(PROMPT + tuple(start), max_tokens=length - len(start), ignore_eos=True)
    return start + rest.ids


@pytest.mark.parametrize("speculation", ["none", "ngram", "draft_model"])
@pytest.mark.parametrize("keep", [0, 1, 9, 10, 11, 25, 26, 27, 39])
async def test_a_rewound_output_continues_from_the_kept_tokens(
    start_engine: Start,
    completion_request: Complete,
    tiny_model: Callable[[str], Any],
    keep: int,
    speculation: str,
) -> None:
    """The kept tokens end inside a block, at its end, and behind it. The prompt has 6 tokens, a block 16."""
    settings: dict[str, dict[str, Any]] = {
        "none": {},
        "ngram": {"num_speculative_tokens": 3},
        "draft_model": {"num_speculative_tokens": 3, "speculative_model": str(tiny_model("llama").path)},
    }
    engine = await start_engine(**settings[speculation])
    request = completion_request(PROMPT, max_tokens=40, ignore_eos=True)
    outputs, last = await play(engine, request, once(0, min(keep + 3, 40), Rewind(0, keep)))
    assert ids_of(outputs[0]) == await expected(engine, 40, keep)
    assert (last.finish_reason, last.usage and last.usage.completion_tokens >= 40) == ("length", True)
    assert engine.stats().kv_blocks_used == 0


async def test_given_ids_are_banned_instead_of_the_withdrawn_token(
    engine: Any, completion_request: Complete
) -> None:
    (whole,) = await engine.complete(PROMPT, max_tokens=12, ignore_eos=True)
    plan = once(0, 8, Rewind(0, 5, banned=(3, 4, 10**6, -1)))
    outputs, _ = await play(engine, completion_request(PROMPT, max_tokens=12, ignore_eos=True), plan)
    assert ids_of(outputs[0]) == await expected(engine, 12, 5, banned=(3, 4)) == whole.ids


async def test_bans_at_one_place_add_up_and_later_bans_are_dropped(
    engine: Any, completion_request: Complete
) -> None:
    came: list[int | None] = []

    def plan(delta: Delta, tokens: list[Token]) -> Rewind | None:
        if len(tokens) > 4 and len(came) < 6:
            came.append(tokens[4].id)
            return Rewind(0, 4)
        return None

    outputs, _ = await play(engine, completion_request(PROMPT, max_tokens=10, ignore_eos=True), plan)
    assert len(set(came)) == 6
    assert outputs[0][4].id not in came
    assert len(outputs[0]) == 10

    # A rewind to an earlier place drops the ban: the same way leads to the same token again.
    rewinds = [Rewind(0, 4), Rewind(0, 2, banned=())]
    outputs, _ = await play(
        engine,
        completion_request(PROMPT, max_tokens=10, ignore_eos=True),
        lambda _, tokens: rewinds.pop(0) if rewinds and len(tokens) > 5 else None,
    )
    (whole,) = await engine.complete(PROMPT, max_tokens=10, ignore_eos=True)
    assert ids_of(outputs[0]) == whole.ids


async def test_a_finished_output_goes_on_when_rewound(engine: Any, completion_request: Complete) -> None:
    (whole,) = await engine.complete(PROMPT, max_tokens=8, ignore_eos=True)
    eos = (whole.ids[5],)
    request = completion_request(PROMPT, max_tokens=8, stop_token_ids=eos, ignore_eos=True)
    num_kept: list[int] = []

    def plan(delta: Delta, tokens: list[Token]) -> Rewind | None:
        if delta.finish_reason == "stop" and not num_kept:
            num_kept.append(len(tokens))
            return Rewind(0, len(tokens), banned=eos)
        return None

    outputs, last = await play(engine, request, plan)
    assert last.finish_reason is not None
    assert ids_of(outputs[0])[: num_kept[0]] == whole.ids[: num_kept[0]]
    assert len(outputs[0]) > num_kept[0]


async def test_an_output_rewound_to_its_full_length_ends_again(
    engine: Any, completion_request: Complete
) -> None:
    request = completion_request(PROMPT, max_tokens=8, ignore_eos=True)
    outputs, last = await play(engine, request, once(0, 8, Rewind(0, 8)))
    (whole,) = await engine.complete(PROMPT, max_tokens=8, ignore_eos=True)
    assert (ids_of(outputs[0]), last.finish_reason) == (whole.ids, "length")


async def test_a_rewind_does_not_change_siblings_and_neighbours(
    engine: Any, completion_request: Complete
) -> None:
    settings: dict[str, Any] = {"max_tokens": 30, "temperature": 1.0, "seed": 3, "ignore_eos": True}
    alone = await engine.complete(PROMPT, n=3, **settings)
    neighbour = asyncio.get_running_loop().create_task(engine.complete((9, 8, 7), **settings))
    outputs, last = await play(
        engine, completion_request(PROMPT, n=3, **settings), once(1, 12, Rewind(1, 10))
    )
    assert [ids_of(outputs[i]) for i in (0, 2)] == [alone[i].ids for i in (0, 2)]
    assert ids_of(outputs[1])[:10] == alone[1].ids[:10]
    assert outputs[1][10].id != alone[1].ids[10]
    assert last.usage is not None
    assert last.usage.completion_tokens >= 92, "withdrawn tokens count as generated"
    assert (await neighbour)[0].ids == (await engine.complete((9, 8, 7), **settings))[0].ids


@pytest.mark.parametrize("num_ahead", [1, 5, 20])
async def test_a_seeded_output_does_not_depend_on_how_far_ahead_the_engine_was(
    engine: Any, completion_request: Complete, num_ahead: int
) -> None:
    request = completion_request(PROMPT, max_tokens=30, temperature=1.0, seed=11, ignore_eos=True)
    first, _ = await play(engine, request, once(0, 6, Rewind(0, 5)))
    later, _ = await play(engine, request, once(0, 5 + num_ahead, Rewind(0, 5)))
    assert ids_of(first[0]) == ids_of(later[0])


async def test_penalties_count_only_the_kept_tokens(engine: Any, completion_request: Complete) -> None:
    settings: dict[str, Any] = {"max_tokens": 20, "frequency_penalty": 1.5, "ignore_eos": True}
    request = completion_request(PROMPT, repetition_penalty=1.4, **settings)
    (whole,) = await engine.complete(PROMPT, repetition_penalty=1.4, **settings)
    outputs, _ = await play(engine, request, once(0, 15, Rewind(0, 4, banned=())))
    assert ids_of(outputs[0]) == whole.ids


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
async def test_no_logprob_names_a_withdrawn_token(
    start_engine: Start, completion_request: Complete, mode: str
) -> None:
    """Contract 6.2. The withdrawn token was the most likely one."""
    engine = await start_engine(logprobs_mode=mode)
    request = completion_request(PROMPT, max_tokens=12, logprobs=5, ignore_eos=True)
    came: list[int | None] = []

    def plan(delta: Delta, tokens: list[Token]) -> Rewind | None:
        if len(tokens) > 4 and len(came) < 3:
            came.append(tokens[4].id)
            return Rewind(0, 4)
        return None

    outputs, _ = await play(engine, request, plan)
    boundary = outputs[0][4]
    assert len(boundary.top) == 5
    assert not {top.id for top in boundary.top} & set(came)
    assert boundary.top[0].id == boundary.id
    assert boundary.logprob == boundary.top[0].logprob


async def test_processors_see_only_the_kept_tokens(start_engine: Start, completion_request: Complete) -> None:
    """Contract 7.1. State that a processor keeps from the tokens it read goes back as well."""
    engine = await start_engine(logits_processors=(*ALL, NO_REPEAT), num_speculative_tokens=3)
    settings: dict[str, Any] = {"max_tokens": 30, "ignore_eos": True}
    settings["logits_processors"] = named(
        no_repeat_ngram={"ngram_size": 2, "window_size": 100}, likes={"back": 2, "by": 3.0}
    )
    (whole,) = await engine.complete(PROMPT, **settings)
    for keep in (0, 7, 22):
        request = completion_request(PROMPT, **settings)
        outputs, _ = await play(engine, request, once(0, keep + 1, Rewind(0, keep, banned=())))
        assert ids_of(outputs[0]) == whole.ids


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
async def test_a_rewound_guided_output_keeps_to_its_grammar(
    engine: Any, completion_request: Complete, keep: int
) -> None:
    """Its guide is rewound as well (contract 7.5)."""
    extra = {"guided_regex": "[a-f]{6,9}( [a-f]{2}){2}"}
    settings: dict[str, Any] = {"max_tokens": 40, "extra": extra}
    (whole,) = await engine.complete(PROMPT, **settings)
    same, _ = await play(
        engine, completion_request(PROMPT, **settings), once(0, keep + 1, Rewind(0, keep, banned=()))
    )
    assert ids_of(same[0]) == whole.ids
    other, last = await play(
        engine, completion_request(PROMPT, **settings), once(0, len(whole.ids), Rewind(0, keep))
    )
    assert other[0][keep].id != whole.ids[keep]
    assert re.fullmatch(extra["guided_regex"], "".join(token.text for token in other[0]))
    assert last.finish_reason == "stop"


@pytest.mark.parametrize("banned", [None, "all", "the one"])
@pytest.mark.parametrize(
    "fields",
    [
        {"extra": {"guided_choice": ["qzx"]}},
        {"extra": {"guided_choice": ["qzx"]}, "logits_processors": named(likes={"back": 2, "by": 3.0})},
        {"logits_processors": named(only={"token_id": ONLY}), "ignore_eos": True},
        {"extra": {"allowed_token_ids": [ONLY]}, "ignore_eos": True},
        {"extra": {"allowed_token_ids": [ONLY]}, "ignore_eos": True, "frequency_penalty": 1.0},
        {"extra": {"allowed_token_ids": [ONLY]}, "ignore_eos": True, "logprobs": 2},
    ],
    ids=[
        "grammar",
        "grammar and shaper",
        "processor",
        "allowed",
        "allowed and penalty",
        "allowed and logprobs",
    ],
)
async def test_an_output_with_no_other_way_to_go_on_ends(
    start_engine: Start,
    completion_request: Complete,
    caplog: pytest.LogCaptureFixture,
    fields: dict[str, Any],
    banned: str | None,
) -> None:
    """Contract 8.3: masks and bans together leave no token, so the engine cannot go back."""
    engine = await start_engine(logits_processors=ALL)
    settings: dict[str, Any] = {"max_tokens": 8, "n": 2, "seed": 3, **fields}
    whole, _ = await engine.complete(PROMPT, **settings)
    ids = {None: None, "all": tuple(range(engine.info.vocab_size)), "the one": (whole.ids[2],)}[banned]
    plan = once(0, 3, Rewind(0, 2, banned=ids))
    ends: dict[int, Delta] = {}

    def noting(delta: Delta, tokens: list[Token]) -> Rewind | None:
        if delta.finish_reason is not None:
            ends[delta.index] = delta
        return plan(delta, tokens)

    outputs, _ = await play(engine, completion_request(PROMPT, **settings), noting)
    assert ids_of(outputs[0]) == whole.ids[:2]
    assert (ends[0].finish_reason, ends[0].stop_reason, ends[0].tokens) == ("content_filter", None, ())
    assert ends[1].finish_reason in ("length", "stop"), "other outputs go on"
    assert ids_of(outputs[1])[2] == whole.ids[2]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert engine.stats().kv_blocks_used == 0


@pytest.mark.parametrize("keep", range(9))
async def test_a_stop_string_is_found_across_the_place_of_a_rewind(
    engine: Any, completion_request: Complete, keep: int
) -> None:
    """Contract 2.7: no part of a stop string is given, wherever the output continues."""
    (whole,) = await engine.complete(PROMPT, max_tokens=24, ignore_eos=True)
    stop = whole.text[len(whole.text) // 2 :][:4]
    settings: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, "stop": (stop,)}
    (expected,) = await engine.complete(PROMPT, **settings)
    assert expected.stop_reason == stop
    keep = min(keep, len(expected.ids) - 1)
    request = completion_request(PROMPT, **settings)
    outputs, last = await play(engine, request, once(0, keep + 1, Rewind(0, keep, banned=())))
    assert "".join(token.text for token in outputs[0]) == expected.text
    assert (last.finish_reason, last.stop_reason) == ("stop", stop)


async def test_no_other_request_finds_withdrawn_tokens_in_the_cache(
    start_engine: Start, completion_request: Complete
) -> None:
    """The blocks are written anew. A prompt with either text gets the same answer as in a fresh engine."""
    engine, fresh = await start_engine(block_size=4), await start_engine(block_size=4)
    request = completion_request(PROMPT, max_tokens=40, ignore_eos=True)
    withdrawn: list[int | None] = []

    def plan(delta: Delta, tokens: list[Token]) -> Rewind | None:
        if len(tokens) < 30 or withdrawn:
            return None
        withdrawn.extend(ids_of(tokens))
        return Rewind(0, 9)

    outputs, _ = await play(engine, request, plan)
    for ids in (withdrawn, ids_of(outputs[0])):
        prompt = (*PROMPT, *ids[:24])
        (found,) = await engine.complete(prompt, max_tokens=10, ignore_eos=True)
        (expected,) = await fresh.complete(prompt, max_tokens=10, ignore_eos=True)
        assert found.ids == expected.ids
        assert found.usage.cached_tokens > 0


async def test_an_output_ends_if_every_token_is_banned(engine: Any, completion_request: Complete) -> None:
    """Contract 8.3, also with a step in flight."""
    request = completion_request(PROMPT, max_tokens=20, ignore_eos=True)
    everything = Rewind(0, 3, banned=tuple(range(engine.info.vocab_size)))
    outputs, last = await play(engine, request, once(0, 5, everything))
    assert (len(outputs[0]), last.finish_reason) == (3, "content_filter")
    assert len((await engine.complete(PROMPT, max_tokens=5, ignore_eos=True))[0].ids) == 5


def test_blocks_of_the_kept_tokens_stay_in_the_cache(
    tiny_core: Callable[..., Any], completion_request: Complete
) -> None:
    core = tiny_core(block_size=4, num_speculative_tokens=2)
    for keep in range(31):
        group = core.add(completion_request(PROMPT, max_tokens=32, n=2, ignore_eos=True))
        seq = group.sequences[1]
        while seq.num_output_tokens < 31:
            core.step()
        ids = seq.token_ids[seq.num_prompt_tokens :]
        core.core.rewind(group, Rewind(1, keep))
        core.check_blocks()
        assert seq.cache.num_computed_tokens >= len(PROMPT) + keep - 4, (
            "at most the tokens of one shared block are lost"
        )
        core.run()
        outputs = seq.token_ids[seq.num_prompt_tokens :]
        assert outputs[:keep] == ids[:keep]
        assert outputs[keep] != ids[keep]
        assert core.core.block_manager.num_used == 0


def test_a_rewind_does_not_revive_an_aborted_request(
    tiny_core: Callable[..., Any], completion_request: Complete
) -> None:
    core = tiny_core()
    group = core.add(completion_request(PROMPT, max_tokens=33, ignore_eos=True))
    for _ in range(5):
        core.step()
    core.core.abort(group)
    core.core.rewind(group, Rewind(0, 2))
    assert not core.core.has_work


async def test_rewindable_gives_the_kept_tokens_once_more(engine: Any, completion_request: Complete) -> None:
    """A reader that keeps state of an output begins it again."""
    request = completion_request(PROMPT, max_tokens=20, n=2, echo=True, logprobs=1, ignore_eos=True)
    seen: dict[int, list[Delta]] = {0: [], 1: []}
    num_rewinds = 0
    flow = StagedFlow(partial(engine.feed, request), [Rewindable()])
    async with aclosing(iterated(flow)) as stream:
        rewind: Rewind | None = None
        with suppress(StopAsyncIteration):
            while True:
                delta = await stream.asend(rewind)
                rewind = None
                seen[delta.index].append(delta)
                num_tokens = sum(len(d.tokens) for d in seen[delta.index] if d.channel == "content")
                if delta.index == 1 and num_tokens > 6 and num_rewinds < 2:
                    num_rewinds += 1
                    rewind = Rewind(1, 5)
                    before, seen[1] = seen[1], []
    again = [d for d in seen[1] if d.channel == "content"]
    assert seen[1][0].channel == "echo"
    assert (seen[1][0].tokens, seen[1][0].prompt_token_ids) == (before[0].tokens, PROMPT)
    assert [t for d in again for t in d.tokens][:5] == [
        t for d in before if d.channel == "content" for t in d.tokens
    ][:5]
    for index in (0, 1):
        content = [d for d in seen[index] if d.channel == "content"]
        assert [t.position for d in content for t in d.tokens] == list(range(20))
        assert [d.finish_reason for d in content if d.finish_reason] == ["length"]
        assert all("".join(t.text for t in d.tokens) == d.text for d in content)


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


async def test_a_recording_holds_the_tokens_that_were_kept_in_the_end(
    engine: Any, completion_request: Complete, tmp_path: Path
) -> None:
    recorder = RecordingEngine(engine, tmp_path, max_bytes=10**6)
    request = completion_request(PROMPT, max_tokens=20, n=2, ignore_eos=True)
    outputs, last = await play(recorder, request, once(1, 12, Rewind(1, 7, banned=(3,))))
    await recorder._folder.aclose()
    (path,) = kept(tmp_path)
    assert b'"rewind":{"index":1,"num_tokens":7,"banned":[3]}' in path.read_bytes()
    deltas = [timed.delta for timed in Recording.load(path).deltas]
    for index in (0, 1):
        own = [delta for delta in deltas if delta.index == index]
        assert [token for delta in own for token in delta.tokens] == outputs[index]
        assert [delta.finish_reason for delta in own if delta.finish_reason] == ["length"]
    assert deltas[-1] == last
