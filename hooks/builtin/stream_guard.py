"""A model that classifies every token of a stream as it comes: `--hook stream_guard`.

The model reads the chat once, and then each new token of the reply: its keys and values stay in the engine's
cache. It runs at the same time as the model that it guards, in this process or at an upstream.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Unpack

from pydantic import Field

from engine.protocol import TextTooLongError
from engine.protocol.guard_models import GuardModels
from hooks import Chunk, GenerationRequest, checked
from hooks.builtin.guard_prompts.conversation import EMPTY, TOO_LONG
from hooks.builtin.stream_heads.debounce import Debounce, Offences
from hooks.builtin.stream_heads.heads import HeadOptions, Level
from hooks.builtin.stream_heads.reader import ChatReader
from hooks.builtin.stream_heads.reply_judge import ReplyJudge
from hooks.builtin.stream_heads.reply_verdicts import ReplyVerdicts
from hooks.detect.argument_types import Names, blamed_on
from hooks.detect.detector import Match
from hooks.detect.model_guard import ModelGuard, ModelOptions, StreamJudge

Threshold = Annotated[float, Field(gt=0, le=1)]

SHIPPED = "weir-demo-stream-guard"
"""The model that ships, by its name."""


class StreamGuard(ModelGuard):
    """Asks a token classifier about each token of a stream, and about prompts (`prompt: refuse`)."""

    @checked
    def __init__(
        self,
        model: str | Path = SHIPPED,
        *,
        threshold: Threshold | None = None,
        thresholds: Mapping[str, Threshold] | None = None,
        strict: bool = False,
        categories: Names | None = None,
        labels: Names | None = None,
        debounce: Debounce = "pair",
        **options: Unpack[ModelOptions],
    ) -> None:
        """`model`: a name of `models:`, a folder, or a hub name. It is of the shape of Qwen3Guard-Stream, or
        another token classifier on a causal model. The one that ships knows the demo's texts alone.

        `threshold`: the least probability of `Unsafe` that counts; None: the most likely level decides.
        `thresholds`: by category. `strict`: `Controversial` counts as well. `categories`: those to
        act on; None: all. `labels`: for other classifiers, the labels to act on, without `B-` and the like;
        `threshold` and `thresholds` are then those of labels.

        `debounce`: `pair` acts if a token and the one before it count, `pair_strict` if they also have the
        same level, and `single` at each token. Raises `ValueError` for invalid arguments.
        """
        self._redacts = options.get("action") in ("redact", "suppress")
        super().__init__(debounce=0 if debounce == "single" else 1, **options)
        self._covers_open = self._mode == "hold" and not self._redacts
        """An offence that is replaced whole must not begin in text that is out."""
        self._model = str(model)
        self._options = HeadOptions(threshold, strict, categories, labels, thresholds or {})
        self._rule: Debounce = debounce
        self._reader: ChatReader | None = None
        """None until `start`."""

    async def start(self, models: GuardModels) -> None:
        """Get the model, and try its chat template. Raises `ValueError` for a model that cannot judge."""
        classifier = await models.classifier(self._model)
        with blamed_on("model"):
            self._reader = ChatReader(classifier, self._options)
        if self._prompt is not None and not self._reader.reads_prompts:
            raise ValueError("prompt: this model has no heads for prompts")

    def open_judge(self, chunk: Chunk) -> StreamJudge:
        turns = self._started.turns(chunk.request, chunk.output_index)
        verdicts = ReplyVerdicts(Offences(self._rule), waits_for_end=self._redacts)
        caller = chunk.request.caller
        return ReplyJudge(self._started, turns, verdicts, caller, covers_open=self._covers_open)

    async def judge_prompt(self, request: GenerationRequest) -> Match | None:
        for i in range(max(1, len(request.prompts))):
            turns = self._started.turns(request, i * request.sampling.n)
            if not any(turn.text.strip() for turn in turns):
                return Match(0, 1, EMPTY)
            try:
                reading = await self._started.read_prompt(turns, request.caller)
            except TextTooLongError:
                return Match(0, 1, TOO_LONG)
            if reading.level is not Level.SAFE:
                return Match(0, 1, reading.category)
        return None

    @property
    def _started(self) -> ChatReader:
        if self._reader is None:
            raise RuntimeError("the guard was not started")
        return self._reader
