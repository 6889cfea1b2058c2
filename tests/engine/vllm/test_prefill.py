"""One engine of vLLM computes prompts, another generates. The connector keeps keys and values in files."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import pytest_asyncio

from engine.protocol import GenerationRequest, Rewind
from engine.protocol.options import EngineConfig
from engine.protocol.processor_specs import NamedProcessorSpec
from tests.engine.conftest import TinyEngine
from tests.engine.core.test_rewind import PROMPT, expected, ids_of, once, play
from tests.engine.vllm.conftest import ARGUMENTS, PROCESSORS

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("default"),
]
LONG = tuple(range(30, 130))
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {"max_tokens": 12},
    "a short prompt": {"prompts": (PROMPT,), "max_tokens": 12},
    "a prompt of whole blocks": {"prompts": (LONG[:97], LONG[:96]), "max_tokens": 4},
    "logprobs": {"max_tokens": 5, "logprobs": 2},
    "echo with logprobs": {"max_tokens": 3, "echo": True, "logprobs": 2},
    "echo alone": {"max_tokens": 0, "echo": True, "logprobs": 1},
    "one token": {"max_tokens": 1},
    "a regular expression": {"max_tokens": 30, "extra": {"guided_regex": "[a-c]{3} [0-9]{1,3}z"}},
    "a processor": {"max_tokens": 9, "logits_processors": (NamedProcessorSpec("by_place"),)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair(vllm_model: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    from engine.vllm.engine import VLLMEngine
    from engine.vllm.options import VLLMOptions

    def connector(role: str) -> dict[str, Any]:
        extra = {"shared_storage_path": str(folder)}
        config = {"kv_connector": "ExampleConnector", "kv_role": role, "kv_connector_extra_config": extra}
        return {"kv_transfer_config": config}

    folder = tmp_path_factory.mktemp("keys_and_values")
    options = VLLMOptions(vllm={**ARGUMENTS, **connector("kv_consumer"), "prefill": connector("kv_producer")})
    config = EngineConfig(
        model=str(vllm_model), max_num_seqs=8, logits_processors=PROCESSORS, share_outputs=False
    )
    engine: Any = VLLMEngine(config, options)
    for name in ("collect", "complete"):
        setattr(engine, name, MethodType(getattr(TinyEngine, name), engine))
    await engine.start()
    yield engine
    await engine.aclose()


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_pair_answers_as_one_engine_does(
    pair: Any, local_engine: Any, completion_request: Callable[..., GenerationRequest], name: str
) -> None:
    # contract 7.4
    fields = {"ignore_eos": True, "prompts": (LONG,), **REQUESTS[name]}
    request = completion_request(*fields.pop("prompts"), **fields)
    answers, others = await pair.collect(request), await local_engine.collect(request)
    for answer, other in zip(answers, others, strict=True):
        assert (answer.text, answer.ids, answer.finish_reason) == (other.text, other.ids, other.finish_reason)
        for token, like in zip([*answer.echo, *answer.tokens], [*other.echo, *other.tokens], strict=True):
            assert token.logprob == (None if like.logprob is None else pytest.approx(like.logprob, abs=1e-3))
    totals = [max(a.usage.completion_tokens for a in some) for some in (answers, others)]
    assert totals[0] == totals[1]


async def test_the_second_engine_does_not_compute_the_prompt_again(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    generate = pair._runtime.llm.generate

    async def recorded(*args: Any, **fields: Any) -> AsyncIterator[Any]:
        async for output in generate(*args, **fields):
            found.append(output.num_cached_tokens or 0)
            yield output

    monkeypatch.setattr(pair._runtime.llm, "generate", recorded)
    prompt = tuple(range(150, 280))
    (answer,) = await pair.complete(prompt, max_tokens=4, ignore_eos=True)
    assert found[0] == 128, "whole blocks of 32, from the connector"
    assert answer.usage.cached_tokens == 0


async def test_a_rewound_output_goes_on_without_another_prefill(
    pair: Any, completion_request: Callable[..., GenerationRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    prefill = pair._runtime.prefill.generate
    monkeypatch.setattr(
        pair._runtime.prefill,
        "generate",
        lambda *args, **fields: keys.append(args[2]) or prefill(*args, **fields),
    )
    request = completion_request(PROMPT, max_tokens=12, ignore_eos=True)
    outputs, _ = await play(pair, request, once(0, 5, Rewind(0, 4)))
    assert len(keys) == 1
    assert ids_of(outputs[0]) == await expected(pair, 12, 4)
