"""Guides of single sequences, and engines whose chat template takes tools."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from engine.local.engine import LocalEngine
from engine.protocol.options import EngineConfig
from engine.sampling.guided.guide import Guide
from tests.engine.conftest import TEMPLATE, VOCAB_SIZE, completion
from tests.engine.sampling.guided.chats import Start

EOS = 1


@pytest.fixture
def guide_of(tiny_core: Callable[..., Any]) -> Callable[..., Guide]:
    """Makes a guide for a request with these fields. `guide.seq` is its sequence, whose ids a test may
    change."""
    core = tiny_core()

    def make(**extra: Any) -> Guide:
        (seq,) = core.processor.process(completion((5, 6), extra=extra)).sequences
        assert seq.sampling.guide is not None
        seq.sampling.guide.seq = seq
        return seq.sampling.guide

    return make


def allowed(guide: Guide) -> list[int]:
    mask = guide.seq.sampling.processors[0].entry.batch  # type: ignore[attr-defined]
    logits = mask(torch.zeros(1, VOCAB_SIZE), [{"guide": guide}])
    return (logits[0] == 0).nonzero().flatten().tolist()


@pytest.fixture
async def start_tools(
    tiny_model: Start, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> AsyncIterator[Start]:
    """Starts an engine whose chat template takes tools and whose tokenizer has more special tokens."""
    async with AsyncExitStack() as stack:

        async def start(parser: str | None, special: tuple[str, ...] = (), **settings: Any) -> LocalEngine:
            path = tmp_path / "model"
            shutil.copytree(tiny_model("llama").path, path)
            with_tools = PreTrainedTokenizerFast.from_pretrained(path)
            with_tools.chat_template = (
                "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}" + TEMPLATE
            )
            with_tools.add_tokens([AddedToken(text, special=True) for text in special])
            with_tools.save_pretrained(path)
            config = EngineConfig(model=str(path), num_threads=1, tool_call_parser=parser, **settings)
            engine = LocalEngine(config)
            stack.push_async_callback(engine.aclose)
            await engine.start()
            return engine

        yield start
