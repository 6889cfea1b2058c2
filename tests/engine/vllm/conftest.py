"""vLLM with a tiny model, started once: a start takes a minute. Each test gets an engine of its own on it."""

import copy
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
import torch
from tokenizers import AddedToken
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.local.admission import Admission
from engine.protocol.options import EngineConfig, LogitsProcessorConfig
from engine.vllm.places import FairPlaces
from tests.engine.conftest import TEMPLATE, TinyEngine
from tests.engine.sampling.logits_processors.builtin.rows import THINKING

if TYPE_CHECKING:
    from engine.vllm.engine import VLLMEngine

HERE = Path(__file__).parent
SIZES: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
PROCESSORS = (
    LogitsProcessorConfig("bad_words", "bad_words"),
    LogitsProcessorConfig("allowed", "allowed_tokens"),
    LogitsProcessorConfig("budget", "thinking_budget", THINKING),
    LogitsProcessorConfig("failing", f"{HERE / 'processors.py'}:Failing"),
    LogitsProcessorConfig("by_place", f"{HERE / 'processors.py'}:ByPlace"),
)
ARGUMENTS: dict[str, Any] = {"enforce_eager": True, "dtype": "float32", "block_size": 32}


@pytest.fixture(scope="session")
def vllm_model(
    vllm_environment: None, tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast
) -> Path:
    path = tmp_path_factory.mktemp("vllm")
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    with_tools = PreTrainedTokenizerFast.from_pretrained(path)
    with_tools.chat_template = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" + TEMPLATE
    with_tools.add_tokens([AddedToken(text, special=True) for text in ("<tool_call>", "</tool_call>")])
    with_tools.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def vllm_environment() -> Iterator[None]:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        yield


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def started(vllm_model: Path) -> AsyncIterator["VLLMEngine"]:
    from engine.vllm.engine import VLLMEngine
    from engine.vllm.options import VLLMOptions

    config = EngineConfig(
        model=str(vllm_model),
        max_num_seqs=8,
        logits_processors=PROCESSORS,
        tool_call_parser="hermes",
        share_outputs=False,
    )
    engine = VLLMEngine(config, VLLMOptions(vllm=ARGUMENTS))
    await engine.start()
    yield engine
    await engine.aclose()


@pytest.fixture
def vllm_engine(started: "VLLMEngine") -> Any:
    """An engine with counters of its own. Closing it leaves vLLM running."""
    from engine.local.preparation import Preparation
    from engine.upstream.request_tracker import RequestTracker

    engine: Any = copy.copy(started)
    engine._requests, engine._running = RequestTracker(), set()
    engine._preparation = Preparation(2)
    engine._admission = Admission(started.config)
    engine._runtime = replace(started._runtime, places=FairPlaces(10))
    engine._end = AsyncMock()
    for name in ("collect", "complete", "chat"):
        setattr(engine, name, MethodType(getattr(TinyEngine, name), engine))
    return engine


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def local_engine(vllm_model: Path) -> AsyncIterator[TinyEngine]:
    """Weir's own engine, with the same model."""
    config = EngineConfig(
        model=str(vllm_model),
        max_num_seqs=8,
        num_threads=1,
        logits_processors=PROCESSORS,
        tool_call_parser="hermes",
    )
    engine = TinyEngine(config)
    await engine.start()
    yield engine
    await engine.aclose()
