"""Guards that search text and follow one another are fused: one automaton reads a stream for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from hooks.loading.loader import LoadedHook
from hooks.loading.screen import JointScreen, Screen, Screened


@dataclass(frozen=True, slots=True)
class Run:
    """Guards that follow one another and are fused."""

    start: int
    """The place of the first, among all hooks."""
    hook: LoadedHook
    """The first of them. It gets the failures of the automaton."""
    guards: tuple[Screened, ...]
    screen: JointScreen


def fuse(hooks: Sequence[LoadedHook], screens: dict[tuple[Screened, ...], JointScreen]) -> list[Run]:
    """The runs of guards among the hooks that have screens. Each other hook is called with each chunk.
    `screens`: those made before, by their guards."""
    runs: list[Run] = []
    guards: list[Screened] = []
    found: list[Screen] = []
    for place, hook in enumerate((*hooks, None)):
        guard = None if hook is None or hook.is_shadow else hook.screened
        if guard is not None and (screen := guard.screen) is not None:
            guards.append(guard)
            found.append(screen)
        elif guards:
            start, key = place - len(guards), tuple(guards)
            if key not in screens:
                screens[key] = JointScreen(found)
            runs.append(Run(start, hooks[start], key, screens[key]))
            guards, found = [], []
    return runs
