"""The interface that gives a guardrail hook a model that judges: values and protocols only, no torch.

A hook that has a method `start` gets a `GuardModels` before its first call (contract 1.9):

    class Judge:
        async def start(self, models: GuardModels) -> None:
            self.engine = await models.generator("guard")
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from engine.protocol import Engine, Tokenizer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Logits: TypeAlias = "Mapping[str, npt.NDArray[np.float32]]"
"""By group, `[tokens, labels]`: a row for each token, in the order of the group's labels."""


class GuardModels(Protocol):
    """Gives hooks the models that they ask for. Hooks that name the same model share it. They close none: a
    model is closed when no hook uses it any more.

    `name`: a name of the configuration's `models:`, a model's folder or hub name, or the name of a guard
    model that ships (`engine.protocol.demo.GUARDS`). Both methods raise `ValueError` or `OSError` for a model
    that does not exist or cannot be used in this way.
    """

    async def generator(self, name: str) -> Engine:
        """A started engine that generates with this model."""

    async def classifier(self, name: str) -> "TokenClassifier":
        """A started model that classifies tokens. Raises `ValueError` for a model without such heads."""


class TokenClassifier(Protocol):
    """A model that gives logits for every token of a text, by groups of labels."""

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """The labels of each group, in the order of their logits: `{"risk_level": ("Safe", "Unsafe")}`. A
        model with a single head has one group, `labels`."""

    @property
    def max_model_len(self) -> int:
        """Most tokens of one stream."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def open(self, *, caller: str = "", ids: Sequence[int] = ()) -> "TokenStream":
        """A new text. `caller`: as in `GenerationRequest.caller`. `ids`: the tokens that it begins with. The
        model reads them beside the caller, who gets no logits of them.

        Raises `TextTooLongError` if they are longer than the model's context, and `EngineError` if the model
        has failed.
        """


class TokenStream(Protocol):
    """One text that grows. The keys and values of its tokens stay in the model's cache. One call of `feed` at
    a time; other streams' calls run beside it.

    Streams of one caller share the cached tokens of `open`, and response times reveal a shared token. Tokens
    of `feed` are not shared: text that hooks may withhold belongs there.
    """

    @property
    def num_tokens(self) -> int:
        """The tokens that the text has now."""

    async def feed(self, ids: Sequence[int]) -> Logits:
        """Append tokens. Returns the logits of the new tokens.

        Raises `TextTooLongError` if the text becomes longer than the model's context, and `EngineError` if
        the model fails. A call that is cancelled leaves a stream that can only be closed.
        """

    def truncate(self, num_tokens: int) -> None:
        """Go back to the first `num_tokens` tokens, at least to those of `open`."""

    def close(self) -> None:
        """Free the text's place in the cache. Closing twice is fine."""
