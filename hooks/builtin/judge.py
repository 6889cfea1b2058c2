"""A generative guard model that judges streams as they grow: `--hook judge`.

The model reads the conversation in its own layout, and its verdict is a probability: that of the tokens with
which it would begin to answer. On the in-process engine a judgement costs the new text and the layout's tail,
because the engine keeps the rest.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Unpack

from pydantic import Field

from engine.protocol import Engine, RequestError
from engine.protocol.guard_models import GuardModels
from hooks import Chunk, GenerationRequest, PromptTooLongError, checked
from hooks.builtin.guard_prompts.conversation import EMPTY, TOO_LONG, Turn, conversation_of
from hooks.builtin.judge_families.asking import Conversation, JudgeModel, Opinion
from hooks.builtin.judge_families.by_chat import ConversationByChat
from hooks.builtin.judge_families.by_ids import ConversationByIds, Layouts
from hooks.builtin.judge_families.family import Family
from hooks.builtin.judge_families.find import FamilyName, FamilyOptions, find_family, knows_system
from hooks.detect.argument_types import Names, Share, Text, blamed_on
from hooks.detect.coverage import Judged
from hooks.detect.detector import Match
from hooks.detect.model_guard import ModelGuard, ModelOptions, WindowJudge

logger = logging.getLogger("weir.hooks")

SHIPPED = "weir-demo-guard"
"""The model that ships, by its name."""
_UNSAFE = "unsafe"
"""The name of an offence whose category the model was not asked for, or did not give."""


class Judge(ModelGuard):
    """Asks a generative guard model about each stream, and about prompts (`prompt: refuse`)."""

    judges_windows = True

    @checked
    def __init__(
        self,
        model: str | Path = SHIPPED,
        *,
        family: FamilyName | None = None,
        policy: str | Path | None = None,
        answers: Annotated[Sequence[Text], Field(min_length=2, max_length=2)] = ("safe", "unsafe"),
        criteria: Names | None = None,
        categories: Names | None = None,
        name_categories: bool = False,
        threshold: Annotated[float, Field(gt=0, le=1)] = 0.5,
        thresholds: Mapping[str, Annotated[float, Field(gt=0, le=1)]] | None = None,
        strict: bool = False,
        least_mass: Share = 0.5,
        **options: Unpack[ModelOptions],
    ) -> None:
        """`model`: a name of `models:`, a folder, or a hub name. The one that ships knows the demo's texts
        alone. `family`: None: found from the model's chat template, or else from its name, which for an
        upstream is a guess; a wrong family may pass what the model would refuse. `policy`: a file with a
        policy in words, for any chat model; `answers`: the words for a text that it allows, and for one that
        it does not.

        `criteria`: for families that are asked about one criterion at a time. `categories`: the categories to
        act on; None: all. `name_categories`: have the model write the categories of an offence, which costs a
        few more tokens; otherwise its name is `unsafe`. Given `categories` or `thresholds`, they are written
        too.

        `threshold`: the least probability of `unsafe` that counts; `thresholds`: exceptions, by category or
        criterion. `strict`: whether Qwen3Guard's `Controversial` counts as unsafe. `least_mass`: the least
        probability of all verdicts together; a model that would answer something else fails the request,
        closed.

        Raises `ValueError` for invalid arguments.
        """
        options.setdefault("window", 32)
        super().__init__(**options)
        self._model = str(model)
        with blamed_on("policy"):
            text = None if policy is None else Path(policy).expanduser().read_text(encoding="utf-8")
            if text is not None and not text.strip():
                raise ValueError("the file is empty")
        self._options = FamilyOptions(family, text, answers)
        self._criteria = criteria
        self._categories = None if categories is None else frozenset(categories)
        self._thresholds = dict(thresholds or {})
        self._threshold = threshold
        self._strict = strict
        self._least_mass = least_mass
        self._asks_categories = name_categories or categories is not None or thresholds is not None
        self._judge_model: JudgeModel | None = None
        self._layouts: Layouts | None = None
        """None: the engine takes chats."""
        self._with_system = False

    async def start(self, models: GuardModels) -> None:
        """Get the model, and try its layout. Raises `ValueError` for a model that cannot judge."""
        engine = await models.generator(self._model)
        await asyncio.to_thread(self._prepare, engine)  # a large vocabulary takes a while to read

    def open_judge(self, chunk: Chunk) -> WindowJudge:
        turns = self._turns(chunk.request, chunk.output_index)
        if turns[-1].role != "assistant":
            turns.append(Turn("assistant", ""))
        return _StreamJudge(self, partial(self._conversation, turns, chunk.request))

    async def judge_prompt(self, request: GenerationRequest) -> Match | None:
        for i in range(max(1, len(request.prompts))):
            turns = self._turns(request, i * request.sampling.n)
            if not any(turn.text.strip() for turn in turns):
                return Match(0, 1, EMPTY)
            *before, last = turns
            for some in (before, turns) if last.role == "assistant" else (turns,):
                if (reason := await self._judge_turns(some, request)) is not None:
                    return Match(0, 1, reason)
        return None

    async def _judge_turns(self, turns: Sequence[Turn], request: GenerationRequest) -> str | None:
        """The reason to refuse a prompt that ends with these turns."""
        try:
            opinions = await self._conversation(turns, request).ask("", self.may_matter)
        except RequestError as error:
            if not _is_too_long(error):
                raise
            return TOO_LONG
        return self.offence(opinions)

    def may_matter(self, opinion: Opinion) -> bool:
        """Whether the opinion's categories decide, or are wanted in the offence's name."""
        least = min(self._threshold, *self._thresholds.values(), 1.0)
        return self._asks_categories and self._score(opinion) >= least

    def offence(self, opinions: Sequence[Opinion]) -> str | None:
        """The name of the likeliest offence that counts."""
        for opinion in sorted(opinions, key=self._score, reverse=True):
            score = self._score(opinion)
            for name in opinion.categories or (opinion.criterion or _UNSAFE,):
                is_wanted = self._categories is None or name in self._categories or name == _UNSAFE
                if is_wanted and score >= self._thresholds.get(name, self._threshold):
                    return name
        return None

    def _prepare(self, engine: Engine) -> None:
        with blamed_on("model"):
            family = find_family(engine, self._model, self._options)
        if engine.tokenizer is None and self._options.name is None and family.name != "policy":
            logger.warning(
                "judge takes the upstream model %s for %s, by its name alone; `family: %s` would say so",
                *(self._model, family.name, family.name),
            )
        criteria = self._criteria_of(family)
        self._check_names(family, criteria)
        self._judge_model = JudgeModel(
            engine, self._model, family, criteria, self._least_mass, secrets.token_hex(16)
        )
        self._layouts = None
        with blamed_on("model"):
            if "logprob_token_ids" in engine.fields.honoured and engine.tokenizer is not None:
                self._layouts = Layouts(engine.tokenizer, family)
                self._layouts.check(criteria)
            else:
                if isinstance(family.prompt([Turn("user", "Hello.")], criteria[0]), str):
                    raise ValueError("this family has no chat template, so it cannot run upstream")
        is_laid_out = family.system == "if laid out" and knows_system(engine.tokenizer)
        self._with_system = is_laid_out or family.system == "always"

    def _score(self, opinion: Opinion) -> float:
        score = opinion.probabilities.get("unsafe", 0.0)
        return score + opinion.probabilities.get("controversial", 0.0) if self._strict else score

    def _turns(self, request: GenerationRequest, output_index: int) -> list[Turn]:
        return conversation_of(request, output_index, with_system=self._with_system)

    def _conversation(self, turns: Sequence[Turn], request: GenerationRequest) -> Conversation:
        if self._judge_model is None:
            raise RuntimeError("the judge was not started")
        if self._layouts is None:
            return ConversationByChat(self._judge_model, turns, request)
        return ConversationByIds(self._judge_model, self._layouts, turns, request)

    def _check_names(self, family: Family, criteria: Sequence[str]) -> None:
        """Raise `ValueError` for names that no offence has: the guard would pass what they are to stop."""
        for argument, names in (("categories", self._categories or ()), ("thresholds", self._thresholds)):
            if wrong := [n for n in names if n != _UNSAFE and not family.may_name(n, criteria)]:
                unknown = ", ".join(sorted(wrong))
                raise ValueError(f"{argument}: the family {family.name} has no category {unknown}")

    def _criteria_of(self, family: Family) -> tuple[str, ...]:
        if self._criteria is None:
            return family.criteria[: 1 if family.first_covers_most else None] or ("",)
        if unknown := sorted(set(self._criteria) - set(family.criteria)):
            known = ", ".join(family.criteria) or "none"
            raise ValueError(f"criteria: the family {family.name} has {known}, and not {', '.join(unknown)}")
        return tuple(self._criteria)


class _StreamJudge:
    """One stream. An offence is a window: the first one to which the model objects, or one after it.

    The model is asked about all windows that have ended. If these are several, and the model objects, it is
    asked again about the first ones, so that the offence is the same however fast the text came.
    """

    def __init__(self, guard: Judge, begin: Callable[[], Conversation]) -> None:
        """`begin`: makes the conversation up to the stream."""
        self._guard = guard
        self._begin = begin
        self._conversation = begin()
        self._text: list[str] = []
        self._num_characters = 0
        self._unasked = ""

    async def judge_windows(self, windows: Sequence[str], is_final: bool) -> Judged:
        start, text = self._num_characters, "".join(windows)
        self._text.append(text)
        self._num_characters += len(text)
        self._unasked += text
        if not text.strip():  # white space cannot be an offence
            return Judged(self._num_characters)
        asked, self._unasked = self._unasked, ""
        try:
            entity = await self._ask(self._conversation, asked)
        except RequestError as error:
            if _is_too_long(error):
                await self._check_prompt()
            raise
        if entity is None:
            return Judged(self._num_characters)
        places = [*accumulate(map(len, windows), initial=start)]
        first, entity = await self._find_first(places[1:], entity)
        offences = [Match(begin, end, entity) for begin, end in pairwise(places[first:])]
        return Judged(self._num_characters, offences[0], offences[1:])

    async def _find_first(self, ends: Sequence[int], entity: str) -> tuple[int, str]:
        """The number of the first window to which the model objects, and the offence. `ends`: the windows'.
        `entity`: the offence at the last one. A model that objects to a text also objects to each longer
        text, so each question halves the number of windows."""
        first, last = 0, len(ends) - 1
        text = "".join(self._text) if last else ""
        while first < last:
            middle = (first + last) // 2
            found = await self._ask(self._begin(), text[: ends[middle]])
            if found is None:
                first = middle + 1
            else:
                last, entity = middle, found
        return first, entity

    async def _check_prompt(self) -> None:
        """Raise `PromptTooLongError` if the prompt is too long for the model without the stream's text."""
        try:
            await self._ask(self._begin(), "")
        except RequestError as error:
            if _is_too_long(error):
                raise PromptTooLongError from error

    async def _ask(self, conversation: Conversation, text: str) -> str | None:
        return self._guard.offence(await conversation.ask(text, self._guard.may_matter))

    def close(self) -> None:
        """The engine keeps what it computed as long as it has room; there is nothing to free."""


def _is_too_long(error: RequestError) -> bool:
    return error.code == "context_length_exceeded"
