"""A family of generative guard models: how it is asked, and how it answers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

from hooks.builtin.guard_prompts.conversation import Turn

Safety = Literal["safe", "controversial", "unsafe"]
"""A guard model's verdict."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt that the model's own chat template lays out."""

    messages: Sequence[Mapping[str, Any]]
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


def messages_of(turns: Sequence[Turn]) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": turn.text} for turn in turns]


Spellings = Mapping[Safety, tuple[str, ...]]
"""The ways to write each verdict. Their first tokens are compared."""


class AnswerLine(NamedTuple):
    """One line of an answer. Its verdict is read from the probabilities of the tokens after `begin`."""

    begin: str
    """The beginning of the line, up to the verdict."""
    spellings: Spellings


class Answer(NamedTuple):
    """A whole answer, read from its text."""

    verdict: Safety
    categories: tuple[str, ...] = ()


class AnswerError(ValueError):
    """A guard model's answer is not in its family's form. The message has no part of the answer."""


class GuardModel(NamedTuple):
    """A guard model, and the deployment's words about it."""

    layout: str
    """A conversation as the model's chat template lays it out; empty without a template."""
    name: str
    has_tokenizer: bool
    has_system: bool
    """Whether the chat template takes system messages; True without a tokenizer."""
    policy: str
    answers: Sequence[str]
    """The policy's words for `safe` and `unsafe`."""


class Family(ABC):
    """A family. `criteria`: asked one by one, each in a prompt of its own; empty: one question covers all."""

    name: ClassVar[str]
    layout_signs: ClassVar[tuple[str, ...]] = ()
    """Texts of a conversation as the chat template lays it out. One of them shows the family."""
    name_signs: ClassVar[tuple[str, ...]] = ()
    """Parts, in lower case, of the name that the deployment gives the model. One of them shows the family."""
    reads_policy: ClassVar[bool] = False
    """Whether the deployment gives the policy. Otherwise the family has its own."""
    criteria: tuple[str, ...] = ()
    first_covers_most: bool = False
    """Whether most later criteria are parts of the first: it alone is asked by default."""
    system: Literal["never", "if laid out", "always"] = "never"
    """Whether its prompt has turns of the role `system`: if the chat template lays them out, or always.
    Otherwise such turns count as the user's."""
    reasons: bool = False
    """Whether the model reasons before it answers: its whole answer is read, without a probability."""
    max_answer_tokens: int = 64
    """Most tokens of an answer that is read as a text."""

    @classmethod
    def of(cls, model: GuardModel) -> Self:
        return cls()

    @classmethod
    def recognises(cls, layout: str, model: str) -> bool:
        """Whether a model is of this family. `layout`: empty without a chat template."""
        is_laid_out = any(sign in layout for sign in cls.layout_signs)
        return is_laid_out or any(sign in model for sign in cls.name_signs)

    def prompt(self, turns: Sequence[Turn], criterion: str) -> Chat | str:
        """The prompt that asks about the last turn. A text is a layout by itself, with its special tokens."""
        return Chat(messages_of(turns))

    @abstractmethod
    def lines(self, turns: Sequence[Turn], criterion: str) -> tuple[AnswerLine, ...]:
        """The lines to read, in the order in which the model writes them. The last one has the verdict that
        counts; the likeliest spelling of each earlier one is put before the next."""

    def categories_begin(self, verdict: str) -> str | None:
        """The text between the verdict's `AnswerLine.begin` and the categories. `verdict`: as it was spelled.
        None: the family has no categories."""
        return None

    def categories(self, text: str) -> tuple[str, ...]:
        """The categories in the text after `categories_begin`. Raises `AnswerError`."""
        return ()

    def may_name(self, category: str, criteria: Sequence[str]) -> bool:
        """Whether an offence may have this name, as far as the family knows. `criteria`: those asked. A model
        that reasons may name what its policy names."""
        return category in criteria if self.criteria else self.reasons

    def read(self, answer: str) -> Answer:
        """Read a whole answer. Raises `AnswerError`."""
        raise AnswerError("the family's answers are read from probabilities")


SAFE_UNSAFE: Spellings = {"safe": ("safe",), "unsafe": ("unsafe",)}
YES_NO: Spellings = {"unsafe": ("Yes", "yes"), "safe": ("No", "no")}
