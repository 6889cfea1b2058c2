"""Asks a model in this process, by token ids: one prefill of the new tokens and the tail gives a probability.

The engine keeps the prompt's beginning from one question to the next. What all prompts of a layout have is
shared by all requests; the rest is kept under a salt of the request.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from engine.protocol import SamplingParams, Tokenizer
from hooks import GenerationRequest
from hooks.builtin.guard_prompts.conversation import Turn, length_of
from hooks.builtin.guard_prompts.growing_text import tokenize
from hooks.builtin.guard_prompts.spliced_prompt import (
    AddedTokens,
    SplicedPrompt,
    chat_layout,
    mark,
    text_after_marks,
)
from hooks.builtin.judge_families.asking import (
    JudgeModel,
    MayMatter,
    Opinion,
    UnclearError,
    probabilities,
    probability,
)
from hooks.builtin.judge_families.family import AnswerLine, Chat, Family


def layout_of(tokenizer: Tokenizer, prompt: Chat | str) -> str:
    """The prompt's text. Raises `RequestError` if the chat template refuses the messages."""
    if isinstance(prompt, str):
        return prompt
    return chat_layout(tokenizer, prompt.messages, prompt.template_kwargs)


class Layouts:
    """The layouts of a family's prompts with one tokenizer, and the tokens of its answers."""

    def __init__(self, tokenizer: Tokenizer, family: Family) -> None:
        self.tokenizer = tokenizer
        self.family = family
        self._added = AddedTokens(tokenizer)
        self._ids: dict[tuple[str, str], int] = {}
        any_criterion = family.criteria[0] if family.criteria else ""
        spaced = f" {mark(0)} "
        prompt = family.prompt([Turn("user", spaced)], any_criterion)
        self._trims = isinstance(prompt, str) or spaced not in layout_of(tokenizer, prompt)

    def check(self, criteria: Sequence[str]) -> None:
        """Lay out a prompt of each kind. Raises `ValueError` for a template that leaves out texts, and for
        verdicts that begin with the same token."""
        user, reply = Turn("user", "Hello."), Turn("assistant", "Hello.")
        for turns in ([user], [user, reply], [user, reply, user]):
            for criterion in criteria:
                layout = self.layout(turns, criterion)
                self.prompt(layout, turns).add("Hello.")
                answer = ""
                for line in self.family.lines(turns, criterion):
                    answer = self.answer_before(layout, answer, line)
                    answer += next(iter(self.first_tokens(layout, answer, line)))

    def layout(self, turns: Sequence[Turn], criterion: str) -> str:
        marked = [Turn(turn.role, mark(i)) for i, turn in enumerate(turns)]
        return layout_of(self.tokenizer, self.family.prompt(marked, criterion))

    def prompt(self, layout: str, turns: Sequence[Turn]) -> SplicedPrompt:
        """The prompt about these turns. The last one's text is empty, and grows."""
        texts = [turn.text for turn in turns[:-1]]
        return SplicedPrompt(self.tokenizer, self._added, layout, texts, trims=self._trims)

    def answer_before(self, layout: str, answer: str, line: AnswerLine) -> str:
        """The answer up to the verdict of `line`. Line ends that are there already are not repeated."""
        text = layout + answer
        num_ends = len(line.begin) - len(line.begin.lstrip("\n"))
        num_there = len(text) - len(text.rstrip("\n"))
        return answer + line.begin[min(num_ends, num_there) :]

    def first_tokens(self, layout: str, answer: str, line: AnswerLine) -> dict[str, int]:
        """The first token of each spelling after `answer`. Raises `ValueError` if two verdicts begin with
        the same one, or if a spelling changes the tokens before it."""
        last = self._added.split(text_after_marks(layout) + answer)[-1]
        before = last if isinstance(last, str) else ""
        by_verdict = {
            verdict: {one: self._first_token(before, one) for one in spellings}
            for verdict, spellings in line.spellings.items()
        }
        ids = [set(tokens.values()) for tokens in by_verdict.values()]
        if len(set().union(*ids)) < sum(map(len, ids)):
            raise ValueError("two verdicts begin with the same token")
        return {one: token for tokens in by_verdict.values() for one, token in tokens.items()}

    def _first_token(self, before: str, spelling: str) -> int:
        key = before, spelling
        if key not in self._ids:
            ids = self.tokenizer.encode_text(before).ids
            whole = self.tokenizer.encode_text(before + spelling).ids
            if whole[: len(ids)] != ids or len(whole) == len(ids):
                raise ValueError(f"the tokenizer joins the verdict {spelling!r} with what is before it")
            self._ids[key] = whole[len(ids)]
        return self._ids[key]


@dataclass(slots=True, eq=False, repr=False)
class ConversationByIds:
    _judge: JudgeModel
    _layouts: Layouts
    _turns: Sequence[Turn]
    """The last one's text is the beginning of the text that grows."""
    _request: GenerationRequest
    _prompts: list[tuple[str, str, SplicedPrompt]] = field(default_factory=list)
    """Criterion, layout, prompt."""

    async def ask(self, text: str, may_matter: MayMatter) -> list[Opinion]:
        num_new = len(text) + (0 if self._prompts else length_of(self._turns))
        await tokenize(num_new, partial(self._add, text))
        first, *rest = self._prompts
        # The first question leaves the conversation in the cache for the later ones.
        opinions = [await self._ask(*first, may_matter)]
        return opinions + [await self._ask(*one, may_matter) for one in rest]

    def _add(self, text: str) -> None:
        self._prompts = self._prompts or self._open()
        for _, _, prompt in self._prompts:
            prompt.add(text)

    def _open(self) -> list[tuple[str, str, SplicedPrompt]]:
        opened = []
        for criterion in self._judge.criteria:
            layout = self._layouts.layout(self._turns, criterion)
            prompt = self._layouts.prompt(layout, self._turns)
            prompt.add(self._turns[-1].text)
            opened.append((criterion, layout, prompt))
        return opened

    async def _ask(
        self, criterion: str, layout: str, prompt: SplicedPrompt, may_matter: MayMatter
    ) -> Opinion:
        family = self._judge.family
        if family.reasons:
            read = family.read(await self._write(prompt, ""))
            return Opinion(criterion, {read.verdict: 1.0}, read.categories)
        answer = ""
        opinion = Opinion(criterion, {})
        for line in family.lines(self._turns, criterion):
            before = self._layouts.answer_before(layout, answer, line)
            masses = await self._masses(prompt, before, self._layouts.first_tokens(layout, before, line))
            opinion = Opinion(criterion, probabilities(line, masses, self._judge.least_mass))
            answer = before + max(masses, key=masses.__getitem__)
        if not may_matter(opinion):
            return opinion
        allowed = line.spellings["safe"]
        offence = max((one for one in masses if one not in allowed), key=masses.__getitem__)
        if (rest := family.categories_begin(offence)) is None:
            return opinion
        return opinion._replace(categories=family.categories(await self._write(prompt, before + rest)))

    async def _masses(
        self, prompt: SplicedPrompt, before: str, tokens: Mapping[str, int]
    ) -> dict[str, float]:
        """The probability of each spelling's first token. Spellings of one verdict with the same token share
        it."""
        ids = tuple(dict.fromkeys(tokens.values()))
        sampling = SamplingParams(max_tokens=1, temperature=0.0, logprobs=0, logprob_token_ids=ids)
        mass_of: dict[int | None, float] = {}
        async with aclosing(self._judge.engine.generate(self._asked(prompt, before, sampling))) as deltas:
            async for delta in deltas:
                for token in delta.tokens:
                    mass_of |= {one.id: probability(one.logprob) for one in token.top}
        if missing := set(ids) - mass_of.keys():
            raise UnclearError(f"The engine returned too few probabilities ({len(missing)} are missing).")
        shares = {i: sum(token == i for token in tokens.values()) for i in ids}
        return {one: mass_of[i] / shares[i] for one, i in tokens.items()}

    async def _write(self, prompt: SplicedPrompt, before: str) -> str:
        """The text that the model writes after `before`; if it reasons, with the names of special tokens."""
        sampling = SamplingParams(max_tokens=self._judge.family.max_answer_tokens, temperature=0.0)
        pieces: list[str] = []
        raw: list[bytes] = []
        async with aclosing(self._judge.engine.generate(self._asked(prompt, before, sampling))) as deltas:
            async for delta in deltas:
                pieces.append(delta.text)
                raw += [token.raw for token in delta.tokens]
        return b"".join(raw).decode(errors="replace") if self._judge.family.reasons else "".join(pieces)

    def _asked(self, prompt: SplicedPrompt, before: str, sampling: SamplingParams) -> GenerationRequest:
        return GenerationRequest(
            request_id=f"{self._request.request_id}-judge",
            model=self._judge.model,
            endpoint="completions",
            prompts=(tuple(prompt.ids(before)),),
            sampling=sampling,
            cache_salt=f"{self._judge.salt}-{self._request.request_id}",
            num_unsalted_tokens=prompt.num_shared,
            caller=self._request.caller,
        )
