"""One answer, and its prompt: the hooks' guard, opened for them."""

from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from engine.protocol import Delta, EngineError, GenerationRequest, RequestError
from hooks.api.decision import Decision
from hooks.decisions.failure import HookError
from hooks.pipeline.admission import RefusedError as PromptRefusedError
from hooks.pipeline.open_guard import OpenGuard
from weir.feeding import Feeding, Item
from weir.running import Runner
from weir.streams import GuardedIterator, GuardedStream

T = TypeVar("T")
PIECE = 1024
"""Characters of a whole text that hooks are shown at a time."""


class RefusedError(PromptRefusedError):
    """A hook refused the prompt. The model must not be asked."""

    def __init__(
        self,
        reason: str,
        request: GenerationRequest,
        place: str | None,
        text: str | None,
        decisions: list[Decision],
    ) -> None:
        super().__init__(reason, request, place)
        self.text = text
        """The hooks' own answer to the prompt, in the model's place. None: they gave none."""
        self.decisions = decisions


@contextmanager
def model_in_own_words() -> Generator[None, None, None]:
    """Raise a model's error as an `EngineError` that names its type and has its HTTP status, 500 if none. The
    model's own message may quote text that no hook has read (contract 5.3)."""
    try:
        yield
    except (EngineError, RequestError, HookError, PromptRefusedError):
        raise  # of a model that is guarded itself
    except Exception as error:  # noqa: BLE001 - the model may be any
        kind, status = type(error), getattr(error, "status_code", None)
        status = status if isinstance(status, int) and 400 <= status < 600 else 500
        reason = f"The model failed with {kind.__module__}.{kind.__qualname__}."
        raise EngineError(reason, status=status) from None


@dataclass(frozen=True, slots=True)
class Text:
    """A whole text, guarded."""

    text: str
    """All that the hooks released. It ends where a hook ended it."""
    stop_reason: str | None = None
    """The reason of the hook that ended the text. None: no hook did."""
    decisions: list[Decision] = field(default_factory=list)


class Answer(Feeding):
    """The guard of one answer, and of its prompt. `Guards` opens one for each answer.

    Use one of `stream`, `deltas`, `text` and their async forms, once; or `feed`, `end` and `close`, which
    these are made of.
    """

    __slots__ = ("request",)

    def __init__(
        self,
        guard: OpenGuard,
        runner: Runner,
        decisions: list[Decision],
        *,
        may_be_cut: bool = False,
        request: GenerationRequest | None = None,
    ) -> None:
        """`request`: as the hooks let it go on to the model. None: they were not shown it."""
        super().__init__(guard, runner, decisions, may_be_cut=may_be_cut)
        self.request = guard.request if request is None else request
        """The request for the model. If a hook decides on prompts, the fields that no hook reads are left out
        or are hashes (contract 8.6)."""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages for the model, as the hooks let them go on."""
        return list(self.request.messages)

    @property
    def tools(self) -> list[Mapping[str, Any]]:
        """The tools for the model, as the hooks let them go on."""
        return list(self.request.tools)

    @property
    def prompt(self) -> str:
        """The prompt for the model, as the hooks let it go on. Raises `ValueError` for a chat."""
        (text,) = self.request.prompts
        assert isinstance(text, str)
        return text

    @overload
    def stream(self, source: AsyncIterable[Item]) -> GuardedStream[str]: ...
    @overload
    def stream(self, source: Iterable[Item]) -> GuardedIterator[str]: ...
    def stream(self, source: Any) -> GuardedStream[str] | GuardedIterator[str]:
        """The content that the hooks release of a source of strings. An async source makes an async stream,
        any other a plain one, which needs no event loop.

        Raises, from the stream: `HookError` if a hook fails (contract 4.1), and the source's own errors. What
        the hooks hold then is never released.
        """
        return self._guarded(source, _content)

    @overload
    def deltas(self, source: AsyncIterable[Item]) -> GuardedStream[Delta]: ...
    @overload
    def deltas(self, source: Iterable[Item]) -> GuardedIterator[Delta]: ...
    def deltas(self, source: Any) -> GuardedStream[Delta] | GuardedIterator[Delta]:
        """As `stream`, with all that is released: reasoning, tool calls, tokens and their logprobs, and
        ends."""
        return self._guarded(source, _itself)

    def _guarded(self, source: Any, of: Callable[[Delta], T | None]) -> GuardedStream[T] | GuardedIterator[T]:
        if isinstance(source, str):
            raise TypeError("a stream of strings is wanted, not a string: text() guards a whole one")
        return (GuardedStream if hasattr(source, "__aiter__") else GuardedIterator)(self, source, of)

    def text(self, text: str) -> Text:
        """Guard a whole text of an answer. Raises `HookError`."""
        with GuardedIterator(self, _pieces(text), _content) as pieces:
            return Text("".join(pieces), self.stop_reason, self.decisions)

    async def atext(self, text: str) -> Text:
        """As `text`, for hooks of which one is async."""
        async with GuardedStream(self, _later(_pieces(text)), _content) as pieces:
            released = [piece async for piece in pieces]
            return Text("".join(released), self.stop_reason, self.decisions)


def _content(delta: Delta) -> str | None:
    return delta.text if delta.channel == "content" else None


def _itself(delta: Delta) -> Delta:
    return delta


def _pieces(text: str) -> Iterable[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


async def _later(pieces: Iterable[str]) -> AsyncIterable[str]:
    for piece in pieces:
        yield piece
