"""A model that classifies tokens, on the engine thread, as hooks see it from an event loop.

The thread owns torch and the core. The loop owns the streams. A call of `feed` waits for its tokens' logits.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from engine.core.classification.core import ClassifierCore, Output, by_group, new_text
from engine.execution.model_runner import ModelRunner
from engine.local.running_core import RunningCore
from engine.protocol import (
    DeadEngineError,
    EngineError,
    EngineStats,
    ShutdownError,
    TextTooLongError,
    Tokenizer,
)
from engine.protocol.errors import Failure
from engine.protocol.guard_models import Logits
from engine.protocol.options import EngineConfig
from engine.scheduling.sequence import SequenceGroup
from engine.text.tokenizer import LocalTokenizer

ONLY_TO_GENERATE = ("probes", "speculative_model", "num_speculative_tokens", "logits_processors")


def check_options(config: EngineConfig) -> None:
    """Raise `ValueError` for options that a model without next tokens does not have."""
    if unused := [name for name in ONLY_TO_GENERATE if getattr(config, name)]:
        raise ValueError(f"{config.model} classifies tokens: it cannot have {' or '.join(unused)}.")


class LocalClassifier:
    """Implements `TokenClassifier` (`engine.protocol.guard_models`). Use it from the event loop
    that started it."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config = config.model_copy(update={"only_guards": True})
        self._running = RunningCore(config, self._load, self._deliver, self._fail)
        self.labels: dict[str, tuple[str, ...]] = {}
        """`start` fills it, and the three that follow. The core itself is not kept: closing frees it."""
        self.max_model_len = 0
        self.tokenizer: Tokenizer
        self._vocab_size = 0
        self._waiting: dict[SequenceGroup, asyncio.Future[Logits]] = {}
        """The calls of `feed` that wait for logits."""
        self._stats = EngineStats()
        self._failure: Failure | None = partial(EngineError, "The model has not been started.", status=503)

    async def start(self) -> None:
        """Load model and tokenizer. Raises `ValueError` or `OSError` if they cannot be loaded, or if the
        model does not classify tokens."""
        await self._running.start()
        self._failure = None

    def open(self, *, caller: str = "", ids: Sequence[int] = ()) -> "LocalTokenStream":
        """Raises `ValueError` for ids that the model does not know."""
        self.check(ids, 0)
        text = new_text(self.config, caller)
        if ids:
            self._running.call(partial(ClassifierCore.begin, text=text, token_ids=tuple(ids)))
        return LocalTokenStream(self, text, len(ids))

    def stats(self) -> EngineStats:
        """The numbers after the last step."""
        return self._stats

    def check_health(self) -> None:
        """Raises `DeadEngineError` once a step has failed for good."""
        if self._failure is not None:
            raise self._failure()

    async def aclose(self) -> None:
        self._close(partial(ShutdownError, "The model is shutting down."))
        await self._running.aclose()

    # Methods for the streams.

    @property
    def no_logits(self) -> Logits:
        """The logits of an empty text."""
        return by_group(np.zeros((0, sum(map(len, self.labels.values()))), np.float32), self.labels)

    def check(self, ids: Sequence[int], num_tokens: int) -> None:
        """Raise unless a text of `num_tokens` may get these tokens."""
        self.check_health()
        if num_tokens + len(ids) > self.max_model_len:
            raise TextTooLongError(f"The model classifies at most {self.max_model_len} tokens of a text.")
        if not all(0 <= i < self._vocab_size for i in ids):
            raise ValueError(f"token ids must be from 0 to {self._vocab_size - 1}")

    async def feed(self, text: SequenceGroup, ids: Sequence[int]) -> Logits:
        logits: asyncio.Future[Logits] = asyncio.get_running_loop().create_future()
        self._waiting[text] = logits
        self._running.call(partial(ClassifierCore.feed, text=text, token_ids=ids))
        try:
            return await logits
        finally:
            self._waiting.pop(text, None)

    def truncate(self, text: SequenceGroup, num_tokens: int) -> None:
        self._running.call(partial(ClassifierCore.truncate, text=text, num_tokens=num_tokens))

    def close(self, text: SequenceGroup) -> None:
        self._running.call(partial(ClassifierCore.close, text=text))

    # Callbacks on the event loop, which the thread posts.

    def _deliver(self, outputs: Sequence[Output], stats: EngineStats) -> None:
        self._stats = stats
        for text, output in outputs:
            logits = self._waiting.get(text)
            if logits is None or logits.done():
                continue  # the call was cancelled
            if isinstance(output, EngineError):
                logits.set_exception(output)
            else:
                logits.set_result(output)

    def _fail(self) -> None:
        self._close(partial(DeadEngineError, "The model has failed."))

    def _close(self, failure: Failure) -> None:
        self._failure = failure
        self._stats = replace(self._stats, num_running=0, num_waiting=0, kv_blocks_used=0)
        for logits in self._waiting.values():
            if not logits.done():
                logits.set_exception(failure())

    # A method for another thread.

    def _load(self) -> ClassifierCore:
        config = self.config
        check_options(config)
        tokenizer = LocalTokenizer.load(config.tokenizer_name, trust_remote_code=config.trust_remote_code)
        runner = ModelRunner.load(config)
        core = ClassifierCore(runner, tokenizer, config)
        self.labels, self.tokenizer = dict(core.labels), tokenizer
        self.max_model_len, self._vocab_size = runner.max_model_len, runner.vocab_size
        return core


class LocalTokenStream:
    """Implements `TokenStream`. A call of `feed` that fails or is cancelled closes the stream."""

    def __init__(self, classifier: LocalClassifier, text: SequenceGroup, num_tokens: int) -> None:
        """`num_tokens`: those that the text begins with."""
        self.num_tokens = num_tokens
        self._num_first = num_tokens
        self._classifier = classifier
        self._text = text
        self._is_fed = False
        self._is_closed = False

    async def feed(self, ids: Sequence[int]) -> Logits:
        """Raises `EngineError` for a text that is closed or becomes too long, and if the model fails;
        `ValueError` for ids that the model does not know."""
        self._check_open()
        self._classifier.check(ids, self.num_tokens)
        if not ids:
            return self._classifier.no_logits
        self._is_fed = True
        try:
            logits = await self._classifier.feed(self._text, tuple(ids))
        except BaseException:
            self.close()
            raise
        self._is_fed = False
        self.num_tokens += len(ids)
        return logits

    def truncate(self, num_tokens: int) -> None:
        """Raises `ValueError` unless the text has so many tokens, and began with no more."""
        self._check_open()
        if not self._num_first <= num_tokens <= self.num_tokens:
            raise ValueError(f"the text has {self.num_tokens} tokens, and not {num_tokens}")
        if num_tokens < self.num_tokens:
            self.num_tokens = num_tokens
            self._classifier.truncate(self._text, num_tokens)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._classifier.close(self._text)

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineError("This text is closed.")
        if self._text.is_aborted:
            raise EngineError("The model failed to classify this text.")
        if self._is_fed:
            raise RuntimeError("one call of feed at a time: the text waits for the logits of its last tokens")
