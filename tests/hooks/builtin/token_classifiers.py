"""A token classifier without a model: its logits follow from the text that it has read."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from engine.protocol import Engine, TextTooLongError, Tokenizer
from engine.protocol.demo import MODEL_DIR
from engine.protocol.guard_models import Logits
from engine.text.tokenizer import LocalTokenizer

RISKS = ("Safe", "Unsafe", "Controversial")
CATEGORIES = ("Birds", "Fish")
QWEN_LABELS = {
    "risk_level": RISKS,
    "category": CATEGORIES,
    "query_risk_level": RISKS,
    "query_category": (*CATEGORIES, "Jailbreak"),
}
Judge = Callable[[str, str], Mapping[str, str]]
"""Gets the text before a token and the token's text; returns a label for groups, the first one by default."""


@cache
def demo_tokenizer() -> LocalTokenizer:
    return LocalTokenizer.load(str(MODEL_DIR))


class FakeClassifier:
    """Implements `TokenClassifier`."""

    def __init__(
        self,
        judge: Judge,
        labels: Mapping[str, tuple[str, ...]] = QWEN_LABELS,
        tokenizer: Tokenizer | None = None,
        max_model_len: int = 4096,
    ) -> None:
        self.labels = labels
        self.max_model_len = max_model_len
        self.tokenizer: Tokenizer = tokenizer or demo_tokenizer()
        self.judge = judge
        self.streams: list[FakeStream] = []
        self.failure: Exception | None = None
        """The error that `feed` raises from now on."""
        self.logit = 4.0
        """The probability of the label that is given; all others have 0."""

    def open(self, *, caller: str = "", ids: Sequence[int] = ()) -> "FakeStream":
        self.check(len(ids))
        self.streams.append(FakeStream(self, caller, ids))
        return self.streams[-1]

    def check(self, num_tokens: int) -> None:
        if num_tokens > self.max_model_len:
            raise TextTooLongError("The text is too long.")

    @property
    def num_open(self) -> int:
        return sum(not stream.is_closed for stream in self.streams)


class FakeStream:
    """Implements `TokenStream`."""

    def __init__(self, model: FakeClassifier, caller: str, ids: Sequence[int]) -> None:
        self.model = model
        self.caller = caller
        self.ids = [*ids]
        self.num_first = len(ids)
        """Tokens that it began with."""
        self.feeds: list[tuple[int, ...]] = []
        self.is_closed = False

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def text(self) -> str:
        return self.model.tokenizer.decode(self.ids)

    async def feed(self, ids: Sequence[int]) -> Logits:
        assert not self.is_closed
        if self.model.failure is not None:
            raise self.model.failure
        self.model.check(len(self.ids) + len(ids))
        self.feeds.append(tuple(ids))
        rows = [self._logits(token_id) for token_id in ids]
        return {group: np.array([row[group] for row in rows], np.float32) for group in self.model.labels}

    def _logits(self, token_id: int) -> dict[str, list[float]]:
        before = self.text
        self.ids.append(token_id)
        given = self.model.judge(before, self.text[len(before) :])
        return {
            group: [self.model.logit * (name == given.get(group, names[0])) for name in names]
            for group, names in self.model.labels.items()
        }

    def truncate(self, num_tokens: int) -> None:
        assert self.num_first <= num_tokens <= len(self.ids)
        del self.ids[num_tokens:]

    def close(self) -> None:
        self.is_closed = True


class FakeModels:
    """Implements `GuardModels`: one classifier, by whatever name."""

    def __init__(self, model: FakeClassifier) -> None:
        self.model = model
        self.names: list[str] = []

    async def generator(self, name: str) -> Engine:
        raise ValueError("it classifies tokens")

    async def classifier(self, name: str) -> FakeClassifier:
        self.names.append(name)
        return self.model
