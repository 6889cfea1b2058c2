"""Tiny models with random weights and a tokenizer trained on the spot: nothing is downloaded."""

import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from engine.core.engine_core import EngineCore
from engine.core.input_processor import InputProcessor
from engine.execution.model_runner import ModelRunner
from engine.local.engine import LocalEngine
from engine.protocol import (
    Delta,
    EngineError,
    GenerationRequest,
    Prompt,
    RequestError,
    SamplingParams,
    Token,
    Usage,
)
from engine.protocol.options import EngineConfig
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer
from tests.engine.core.block_accounting import check_blocks
from tests.engine_process import remote_engine

TEXT = "the quick brown fox jumps over the lazy dog. Grüße, 你好 世界! hello world, how are you today? "
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content + '' }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
VOCAB_SIZE = 400
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 512,
    # Large enough for the next token to depend on the text, and for no two logits to be nearly equal.
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
LAYERS = {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
CONFIGS: dict[str, PreTrainedConfig] = {
    "qwen3": Qwen3Config(**SIZES),
    "llama": LlamaConfig(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=10),
    "gemma2": Gemma2Config(
        **SIZES | LAYERS, sliding_window=10, attn_logit_softcapping=5.0, query_pre_attn_scalar=12
    ),
    "gemma3": Gemma3TextConfig(**SIZES | LAYERS, sliding_window=10, query_pre_attn_scalar=12),
    "gpt_oss": GptOssConfig(**SIZES | LAYERS, sliding_window=10, num_local_experts=4, num_experts_per_tok=2),
    # Keys and values have different sizes.
    "deepseek_v3": DeepseekV3Config(
        **SIZES | {"num_key_value_heads": 4, "head_dim": 8},
        moe_intermediate_size=32,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        kv_lora_rank=16,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=12,
        first_k_dense_replace=1,
        n_shared_experts=1,
    ),
    "gpt2": GPT2Config(
        vocab_size=VOCAB_SIZE,
        n_embd=48,
        n_layer=2,
        n_head=4,
        n_positions=512,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
    ),
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    """A test draws the same numbers whichever tests ran before it in its process."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def fast_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer(fast_tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=fast_tokenizer, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )


@dataclass(frozen=True)
class TinyModel:
    """A model in a directory, and the same as transformers runs it."""

    path: Path
    model: Any

    def generate(self, prompt: list[int], max_tokens: int) -> list[int]:
        """The greedy continuation of transformers, past any end of sequence."""
        output = self.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return output[0, len(prompt) :].tolist()


@pytest.fixture(scope="session")
def tiny_model(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast
) -> Callable[[str], TinyModel]:
    """Makes a family's model at the first call. The family is a key of `CONFIGS`."""
    made: dict[str, TinyModel] = {}

    def make(family: str) -> TinyModel:
        if family not in made:
            path = tmp_path_factory.mktemp(family)
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(CONFIGS[family], attn_implementation="eager").eval()
            model.save_pretrained(path)
            tokenizer.save_pretrained(path)
            made[family] = TinyModel(path, model)
        return made[family]

    return make


@dataclass
class Answer:
    """One output, put together from its deltas."""

    deltas: list[Delta]

    def __post_init__(self) -> None:
        assert [d.finish_reason is not None for d in self.deltas] == [False] * (len(self.deltas) - 1) + [True]
        assert all("".join(t.text for t in d.tokens) == d.text for d in self.deltas)

    @property
    def tokens(self) -> list[Token]:
        return [t for d in self.deltas if d.channel == "content" for t in d.tokens]

    @property
    def echo(self) -> list[Token]:
        return [t for d in self.deltas if d.channel == "echo" for t in d.tokens]

    @property
    def ids(self) -> list[int | None]:
        return [t.id for t in self.tokens]

    @property
    def text(self) -> str:
        return "".join(d.text for d in self.deltas if d.channel == "content")

    @property
    def finish_reason(self) -> str | None:
        return self.deltas[-1].finish_reason

    @property
    def stop_reason(self) -> str | int | None:
        return self.deltas[-1].stop_reason

    @property
    def usage(self) -> Usage | None:
        return self.deltas[-1].usage


def answers(deltas: list[Delta]) -> list[Answer]:
    indices = sorted({d.index for d in deltas})
    assert indices == list(range(len(indices)))
    return [Answer([d for d in deltas if d.index == i]) for i in indices]


def completion(*prompts: Prompt, **fields: Any) -> GenerationRequest:
    """A request for completions, greedy by default. Fields of `SamplingParams` are set there."""
    names = {f.name for f in dataclasses.fields(SamplingParams)}
    sampling = {"temperature": 0.0} | {name: fields.pop(name) for name in names & fields.keys()}
    return GenerationRequest(
        request_id="r",
        model="tiny",
        endpoint="completions",
        prompts=prompts,
        sampling=SamplingParams(**sampling),
        **fields,
    )


class TinyEngine(LocalEngine):
    """A `LocalEngine` with shortcuts."""

    async def collect(self, request: GenerationRequest) -> list[Answer]:
        return answers([delta async for delta in self.generate(request)])

    async def complete(self, *prompts: Prompt, **fields: Any) -> list[Answer]:
        return await self.collect(completion(*prompts, **fields))

    async def chat(self, *contents: Any, **fields: Any) -> list[Answer]:
        messages = tuple({"role": "user", "content": content} for content in contents)
        request = completion(**fields)
        return await self.collect(dataclasses.replace(request, endpoint="chat", messages=messages))


EngineFactory = Callable[..., Awaitable[TinyEngine]]


@pytest.fixture
async def start_engine(tiny_model: Callable[[str], TinyModel]) -> AsyncIterator[EngineFactory]:
    """Starts an engine with a family's model and the given settings. It is closed after the test."""
    async with AsyncExitStack() as stack:

        async def start(family: str = "llama", **settings: Any) -> TinyEngine:
            settings = {"max_num_seqs": 8, "num_threads": 1, "model": str(tiny_model(family).path)} | settings
            engine = TinyEngine(EngineConfig(**settings))
            stack.push_async_callback(engine.aclose)
            await engine.start()
            return engine

        yield start


@pytest.fixture
async def start_remote(tiny_model: Callable[[str], TinyModel]) -> AsyncIterator[EngineFactory]:
    """As `start_engine`, for an engine that a host runs."""
    async with AsyncExitStack() as stack:

        async def start(family: str = "llama", **settings: Any) -> Any:
            settings = {"max_num_seqs": 8, "num_threads": 1, "model": str(tiny_model(family).path)} | settings
            return await stack.enter_async_context(remote_engine(EngineConfig(**settings)))

        yield start


@pytest.fixture
async def engine(start_engine: EngineFactory) -> TinyEngine:
    return await start_engine()


class TinyCore:
    """An `EngineCore` that tests step by hand. Its blocks are checked after each step."""

    def __init__(self, path: Path, **settings: Any) -> None:
        config = self.config = EngineConfig(model=str(path), num_threads=1, **settings)
        tokenizer = LocalTokenizer.load(config.model)
        runner = ModelRunner.load(config)
        self.core = EngineCore(runner, tokenizer, config)
        self.processor = InputProcessor.make(tokenizer, runner, config)
        self.deltas: dict[SequenceGroup, list[Delta]] = {}
        self.errors: dict[SequenceGroup, EngineError | RequestError] = {}

    def add(self, request: GenerationRequest) -> SequenceGroup:
        group = self.processor.process(request)
        self.deltas[group] = []
        self.core.add(group)
        return group

    def step(self) -> None:
        for group, output in self.core.step():
            if isinstance(output, EngineError | RequestError):
                self.errors[group] = output
            else:
                self.deltas[group].append(output)
        self.check_blocks()

    def run(self) -> None:
        while self.core.has_work:
            self.step()

    def serve(self, requests: list[GenerationRequest], rng: random.Random) -> list[SequenceGroup]:
        """Run the requests together. They join in different steps; some have a twin that is aborted."""
        groups = []
        for request in requests:
            groups.append(self.add(request))
            doomed = self.add(request) if rng.random() < 0.3 else None
            for _ in range(rng.randint(0, 3)):
                self.step()
            if doomed is not None:
                self.core.abort(doomed)
        self.run()
        return groups

    def answers(self, group: SequenceGroup) -> list[Answer]:
        return answers(self.deltas[group])

    def check_blocks(self) -> None:
        scheduler = self.core.scheduler
        tables = [s.cache.block_table for s in [*scheduler.running, *scheduler.waiting]]
        check_blocks(self.core.block_manager, tables)


@pytest.fixture(scope="session")
def tiny_core(tiny_model: Callable[[str], TinyModel]) -> Callable[..., TinyCore]:
    def make(family: str = "llama", **settings: Any) -> TinyCore:
        return TinyCore(tiny_model(family).path, **settings)

    return make


@pytest.fixture(scope="session")
def completion_request() -> Callable[..., GenerationRequest]:
    """The function `completion`."""
    return completion


CRAMPED = {
    # A step computes few tokens, so prompts are prefilled in chunks. The cache has few blocks, so sequences
    # preempt each other: 9 blocks of 8 tokens have room for one sequence, not for four.
    "max_num_batched_tokens": 7,
    "block_size": 8,
    "max_model_len": 72,
}


def random_prompts(number: int, longest: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(4, 320) for _ in range(rng.randint(1, longest))] for _ in range(number)]


def cramped_core(tiny_core: Callable[..., Any], family: str, **settings: Any) -> Any:
    sizing = {name: settings[name] for name in SIZING if name in settings}
    memory = 72 * token_memory(tiny_core, family, **sizing)
    return tiny_core(family, **CRAMPED, **settings, kv_cache_memory=memory)


SIZING = ("model_impl", "num_speculative_tokens", "speculative_model")
"""The settings that decide how much memory a token takes in the cache."""


@cache
def token_memory(tiny_core: Callable[..., Any], family: str, **settings: Any) -> int:
    """The bytes of a token in the cache, and in the cache of the draft model."""
    runner = tiny_core(family, **settings).core.runner
    caches = [runner.kv_cache, runner.draft.kv_cache] if runner.draft else [runner.kv_cache]
    pools = [pool for c in caches for pool in (*c.keys.values(), *c.values.values())]
    return sum(pool[0].nbytes for pool in pools) // runner.kv_cache.block_size
