"""One screen for guards that stand side by side in a pipeline: an automaton, built as texts need it.

A state stands for the marks of all screens behind the same text. So a character costs one step, however many
guards read it.
"""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

from hooks.api.screen import Mark
from hooks.loading.loader import LoadedHook
from hooks.loading.screens import LoadedScreen, checked
from hooks.pipeline.failure import BadVerdictError

MAX_STEPS = 50_000
"""Most steps that an automaton keeps. Then it forgets them all."""


class ScreenError(Exception):
    """A hook's screen failed: it raised, gave nonsense or was late. It fails its request as the hook would
    (contract 4.1). `place`: the hook's among those of the run. The cause is the hook's own error."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place


class State(dict[str, "State | None"]):
    """The state behind each character; None: a guard must be called."""

    __slots__ = ("_screen", "held", "holds", "marks", "over")

    def __init__(self, screen: "JointScreen", marks: tuple[Mark, ...]) -> None:
        super().__init__()
        self._screen = screen
        self.marks = marks
        self.holds = tuple(mark.held > 0 for mark in marks)
        """For each guard, whether it holds text."""
        self.held = max(mark.held for mark in marks)
        """The characters that one guard or another holds."""
        self.over: dict[str, State] = {}
        """The states behind characters at which no match begins: see `Screen.step_over`."""

    def __missing__(self, char: str) -> "State | None":
        state = self[char] = self._screen.step(self, char)
        return state


class JointScreen:
    """The screens of some guards, as one."""

    def __init__(self, screens: Sequence[LoadedScreen], timeout: float) -> None:
        """`timeout`: seconds that one hook's screen may take for a chunk."""
        self.seconds: list[float] | None = None
        """The time that each screen has taken for this chunk. None: no time."""
        self.width = max(screen.width for screen in screens)
        self.screens = tuple(screens)
        self._timeout = timeout
        self._states: dict[tuple[Mark, ...], State] = {}
        self._num_steps = 0
        self.start = State(self, tuple(screen.start for screen in screens))
        self.anywhere = State(self, tuple(screen.anywhere for screen in screens))

    def ask(self, place: int, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the screen at `place`. Raises `ScreenError` if it raises or is late."""
        started = monotonic()
        try:
            reply = method(*arguments)
        except BaseException as error:
            raise ScreenError(place) from error
        seconds = self.seconds = self.seconds or [0.0] * len(self.screens)
        seconds[place] += monotonic() - started
        if seconds[place] > self._timeout:
            raise ScreenError(place) from TimeoutError("its deadline passed")
        return reply

    def _checked(self, place: int, mark: object, most_held: int) -> Mark:
        try:
            return checked(mark, most_held)
        except Exception as error:  # noqa: BLE001 - a mark's hash may raise anything
            raise ScreenError(place) from BadVerdictError(f"it gave no mark ({type(error).__name__})")

    def step(self, state: State, char: str) -> State | None:
        self._count_step()
        marks: list[Mark] = []
        for place, (screen, mark) in enumerate(zip(self.screens, state.marks, strict=True)):
            stepped = self.ask(place, screen.step, mark, char)
            if stepped is None:
                return None
            marks.append(self._checked(place, stepped, mark.held + 1))
        return self._state(tuple(marks))

    def read(self, state: State | None, text: str) -> State | None:
        """The state behind `text`; None: a guard must be called."""
        for char in text:
            if state is None:
                break
            state = state[char]
        return state

    def read_over(self, state: State, text: str) -> State:
        """The state behind `text`, in which the guards have decided that no match begins that may be open."""
        for char in text:
            over = state.over.get(char)
            if over is None:
                self._count_step()
                over = state.over[char] = self._state(tuple(self._stepped_over(state, char)))
            state = over
        return state

    def _stepped_over(self, state: State, char: str) -> Iterator[Mark]:
        for place, (screen, mark) in enumerate(zip(self.screens, state.marks, strict=True)):
            yield self._checked(place, self.ask(place, screen.step_over, mark, char), 0)

    def decided(self, state: State) -> State:
        """The state at the same place when the guards have decided that no match is open there."""
        return self._state(tuple(Mark(0, mark.before) for mark in state.marks)) if state.held else state

    def _state(self, marks: tuple[Mark, ...]) -> State:
        state = self._states.get(marks)
        if state is None:
            state = self._states[marks] = State(self, marks)
        return state

    def _count_step(self) -> None:
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            states, self._states, self._num_steps = self._states, {}, 0
            for state in (self.start, self.anywhere, *states.values()):
                state.clear()
                state.over.clear()


Run = tuple[int, int, JointScreen]
"""Hooks that stand side by side: the place of the first, the place behind the last, and their screen."""


class JointScreens:
    """The joint screens of a pipeline's hooks."""

    def __init__(self, timeout: float) -> None:
        """`timeout`: see `JointScreen`."""
        self._timeout = timeout
        self._screens: dict[tuple[LoadedScreen, ...], JointScreen] = {}

    def runs(self, hooks: Sequence[LoadedHook]) -> list[Run]:
        """The runs of hooks that have screens. Each other hook is called with each chunk."""
        found: list[Run] = []
        screens: list[LoadedScreen] = []
        for place, hook in enumerate((*hooks, None)):
            screen = None if hook is None or hook.is_shadow else hook.screen
            if screen is not None:
                screens.append(screen)
            elif screens:
                found.append((place - len(screens), place, self._joint(tuple(screens))))
                screens = []
        return found

    def _joint(self, screens: tuple[LoadedScreen, ...]) -> JointScreen:
        joint = self._screens.get(screens)
        if joint is None:
            joint = self._screens[screens] = JointScreen(screens, self._timeout)
        return joint
