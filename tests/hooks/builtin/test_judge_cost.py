"""The cost of judging with a generative guard model, as the engine counts it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from engine.local.engine import LocalEngine
from engine.protocol import GenerationRequest
from engine.protocol.options import EngineConfig
from engine.scheduling import block_hash
from hooks.builtin.judge import Judge
from hooks.builtin.judge_families.asking import Opinion
from tests.helpers import guard_all, make_deltas, make_request, pipeline_of, slow
from tests.hooks.builtin.judges import Models, tokenizer_of

LENGTH, WINDOW, BLOCK = 2048, 32, 16


@pytest.fixture(autouse=True)
def mode() -> str:
    """In this process: the models are of this process."""
    return "in-process"


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts a tiny random model with a family's tokenizer, as an engine."""
    engines: list[LocalEngine] = []

    async def started(name: str, **options: Any) -> LocalEngine:
        folder = tmp_path / f"{name}-{len(engines)}"
        tokenizer = tokenizer_of(name)
        torch.manual_seed(5)
        config = Qwen3Config(
            vocab_size=tokenizer.fast.get_vocab_size(),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=4096,
        )
        Qwen3ForCausalLM(config).save_pretrained(folder)
        template = tokenizer._chat._tokenizer.chat_template
        own = PreTrainedTokenizerFast(tokenizer_object=tokenizer.fast, chat_template=template)
        own.save_pretrained(folder)
        engine = LocalEngine(EngineConfig(model=str(folder), num_threads=1, block_size=BLOCK, **options))
        engines.append(engine)
        await engine.start()
        return engine

    yield started
    for engine in engines:
        await engine.aclose()


def text_pieces(name: str, num_tokens: int) -> list[str]:
    """A text of so many tokens of the guard model, token by token."""
    rng, tokenizer = random.Random(7), tokenizer_of(name)
    words = ["message", "content", "The", "conversation", "Say", "categories", "safe", "judged", "answer"]
    text = ""
    while len(tokenizer.encode_text(text).ids) < num_tokens:
        text += " ".join(rng.choice(words) for _ in range(200)) + ".\n\n"
    ends = tokenizer.encode_text(text).ends[:num_tokens]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


async def judged(engine: LocalEngine, name: str, pieces: list[str]) -> tuple[int, Any, list[float]]:
    """Tokens computed while a stream is judged, the guard's requests, and its probabilities of `unsafe`."""
    guard = Judge(name, least_mass=0.0, threshold=1.0, window=WINDOW, first_window=WINDOW)
    await guard.start(Models(engine))
    asked: list[GenerationRequest] = []
    told: list[float] = []
    generate, offence = engine.generate, guard.offence

    def seen_opinions(opinions: Sequence[Opinion]) -> str | None:
        told.extend(one.probabilities["unsafe"] for one in opinions)
        return offence(opinions)

    def seen(request: GenerationRequest) -> Any:
        asked.append(request)
        return generate(request)

    engine.generate = seen  # type: ignore[method-assign]
    guard.offence = seen_opinions  # type: ignore[method-assign]
    before = engine.stats().computed_tokens_total
    deltas = await guard_all(pipeline_of(guard), make_deltas(pieces))
    assert "".join(delta.text for delta in deltas) == "".join(pieces)
    return engine.stats().computed_tokens_total - before, asked, told


def tail_of(name: str, request: GenerationRequest) -> int:
    """Tokens of a prompt after the conversation."""
    tokenizer, end = tokenizer_of(name), "<END CONVERSATION>"
    (ids,) = request.prompts
    return len(tokenizer.encode(end + tokenizer.decode(cast(Any, ids)).rpartition(end)[2]))


@pytest.mark.parametrize("name", ["llama-guard-3", slow("qwen3guard-gen")])
async def test_a_judgement_computes_the_new_tokens_and_the_tail(name: str, start: Callable[..., Any]) -> None:
    pieces = text_pieces(name, LENGTH)
    computed, asked, told = await judged(await start(name), name, pieces)
    assert len(asked) == LENGTH // WINDOW
    head, tail = asked[0].num_unsalted_tokens, tail_of(name, asked[0])
    assert computed <= 1.05 * (head + LENGTH + len(asked) * (tail + BLOCK))
    from_scratch, again, told_again = await judged(
        await start(name, enable_prefix_caching=False), name, pieces
    )
    assert from_scratch >= 8 * computed
    assert [one.prompts for one in again] == [one.prompts for one in asked]
    assert told == pytest.approx(told_again, abs=1e-4)


async def test_a_judgement_hashes_only_the_blocks_of_new_text_and_the_tail(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, num_hashed = "llama-guard-3", 0

    def hashed(*args: Any) -> bytes:
        nonlocal num_hashed
        num_hashed += 1
        return original(*args)

    original = block_hash._block_hash
    monkeypatch.setattr(block_hash, "_block_hash", hashed)
    _, asked, _ = await judged(await start(name), name, text_pieces(name, LENGTH))
    head, tail = asked[0].num_unsalted_tokens, tail_of(name, asked[0])
    blocks_of_a_judgement = (WINDOW + tail) // BLOCK + 2
    assert num_hashed <= head // BLOCK + len(asked) * blocks_of_a_judgement


async def test_four_criteria_share_their_conversation(start: Callable[..., Any]) -> None:
    name = "granite-guardian-3.3"
    question = "".join(text_pieces(name, 1000))
    criteria = ["harm", "violence", "profanity", "jailbreak"]
    costs = []
    for asked in (criteria, criteria[:1]):
        engine = await start(name)
        guard = Judge(name, least_mass=0.0, threshold=1.0, criteria=asked, prompt="refuse")
        await guard.start(Models(engine))
        await guard.judge_prompt(make_request(messages=({"role": "user", "content": question},)))
        costs.append(engine.stats().computed_tokens_total)
    together, alone = costs
    assert together <= 0.4 * 4 * alone


async def test_verdicts_among_other_streams_in_a_small_cache_are_those_of_a_stream_alone(
    start: Callable[..., Any],
) -> None:
    """Blocks are evicted, and judgements are preempted and computed again."""
    name = "llama-guard-3"
    pieces = text_pieces(name, 1200)
    streams = [pieces[i * 200 : i * 200 + 400] for i in range(5)]
    large, small = await start(name), await start(name, kv_cache_memory=2**16, max_num_seqs=5)
    alone = [(await judged(large, name, one))[2] for one in streams]
    among = await asyncio.gather(*(judged(small, name, one) for one in streams))
    assert [told for _, _, told in among] == [pytest.approx(told, abs=1e-4) for told in alone]
    assert small.stats().kv_blocks < 5 * len(among[0][1][-1].prompts[0]) // BLOCK
