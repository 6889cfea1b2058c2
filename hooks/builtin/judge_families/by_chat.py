"""Asks an upstream engine over chat: the model writes its answer, with the likeliest tokens at each place.

The upstream lays the prompt out. Whether the judged text can close its own turn there is up to the upstream.
"""

from collections.abc import Sequence
from contextlib import aclosing

from engine.protocol import SamplingParams, Token
from hooks import GenerationRequest
from hooks.builtin.guard_prompts.conversation import Turn
from hooks.builtin.judge_families.asking import (
    JudgeModel,
    MayMatter,
    Opinion,
    UnclearError,
    probabilities,
    probability,
)
from hooks.builtin.judge_families.family import AnswerLine, Chat

NUM_TOP = 20
"""The most alternatives that the API gives."""
_ALMOST_ALL = 0.99
"""A verdict whose token is not among the likeliest counts as impossible if the rest have this much."""


class ConversationByChat:
    """One conversation. `turns`: the last one's text is the beginning of the text that grows."""

    def __init__(self, judge: JudgeModel, turns: Sequence[Turn], request: GenerationRequest) -> None:
        self._judge = judge
        *self._before, last = turns
        self._role = last.role
        self._text = last.text
        self._request = request

    async def ask(self, text: str, may_matter: MayMatter) -> list[Opinion]:
        self._text += text
        return [await self._ask(criterion, may_matter) for criterion in self._judge.criteria]

    async def _ask(self, criterion: str, may_matter: MayMatter) -> Opinion:
        family = self._judge.family
        turns = [*self._before, Turn(self._role, self._text)]
        prompt = family.prompt(turns, criterion)
        assert isinstance(prompt, Chat)  # checked when the guard started
        tokens, text = await self._write(prompt)
        if family.reasons:
            answer = family.read(text)
            return Opinion(criterion, {answer.verdict: 1.0}, answer.categories)
        place = 0
        for line in family.lines(turns, criterion):
            place = _place_of(line, tokens, place)
        found = probabilities(line, _masses(line, tokens[place]), self._judge.least_mass)
        opinion = Opinion(criterion, found)
        rest = family.categories_begin("")
        if rest is None or found["unsafe"] < max(found.values()) or not may_matter(opinion):
            return opinion
        written = "".join(token.text for token in tokens[place:])
        begin = rest.strip() or "\n"
        return opinion._replace(categories=family.categories(written.partition(begin)[2]))

    async def _write(self, prompt: Chat) -> tuple[list[Token], str]:
        """The answer's tokens, and its text without reasoning."""
        family = self._judge.family
        sampling = SamplingParams(
            max_tokens=family.max_answer_tokens, temperature=0.0, logprobs=None if family.reasons else NUM_TOP
        )
        kwargs = {"chat_template_kwargs": dict(prompt.template_kwargs)} if prompt.template_kwargs else {}
        asked = GenerationRequest(
            request_id=f"{self._request.request_id}-judge",
            model=self._judge.model,
            endpoint="chat",
            messages=tuple(prompt.messages),
            sampling=sampling,
            extra=kwargs,
            given=frozenset({"temperature"}),
            caller=self._request.caller,
        )
        tokens: list[Token] = []
        text: list[str] = []
        async with aclosing(self._judge.engine.generate(asked)) as deltas:
            async for delta in deltas:
                if delta.channel == "content":
                    tokens += delta.tokens
                    text.append(delta.text)
        return tokens, "".join(text)


def _place_of(line: AnswerLine, tokens: Sequence[Token], start: int) -> int:
    """The place of the token that begins the verdict. White space in the answer does not matter."""
    begin, text = "".join(line.begin.split()), ""
    for place in range(start, len(tokens)):
        word = tokens[place].text.strip()
        if word and text.endswith(begin):
            return place
        text += word
    raise UnclearError("The guard model's answer does not have the form of its family.")


def _masses(line: AnswerLine, token: Token) -> dict[str, float]:
    """The probability of each spelling: of the tokens that begin it and no other verdict."""
    verdict_of = {one.strip(): verdict for verdict, words in line.spellings.items() for one in words}
    masses = dict.fromkeys((one for words in line.spellings.values() for one in words), 0.0)
    seen: set[str] = set()
    for one in token.top:
        word = one.raw.decode(errors="replace").strip()
        begun = {verdict for name, verdict in verdict_of.items() if word and name.startswith(word)}
        if len(begun) == 1:
            (verdict,) = begun
            masses[line.spellings[verdict][0]] += probability(one.logprob)
            seen.add(verdict)
    known = sum(masses.values())
    if len(seen) < len(line.spellings) and not known >= _ALMOST_ALL:
        raise UnclearError("The guard model's likeliest tokens lack a verdict.")
    return masses
