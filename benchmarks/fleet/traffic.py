"""Chats and agents that share system prompts, as people and programs send them.

Lengths count blocks of `BLOCK` tokens. One seed makes the same chats, whatever becomes of them.
"""

import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, count

from engine.protocol import GenerationRequest
from engine.upstream.pool.routing import Keys, prompt_keys

BLOCK = 16


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of chat. All lengths are means, unless they say otherwise."""

    name: str
    share: float
    """Of all chats."""
    systems: int
    """System prompts. A few are far more popular than the rest (Zipf)."""
    system_blocks: tuple[int, int]
    """The shortest and the longest."""
    first_messages: int
    """First messages that many chats begin with (Zipf)."""
    popular: float
    """Chats that begin with one of those."""
    first_blocks: int
    message_blocks: int
    answer_blocks: int
    turns: int
    pause: float
    """Seconds between an answer and the next turn."""


KINDS = (
    Kind("chat", 0.8, 50, (10, 80), 200, 0.25, 4, 4, 8, turns=5, pause=15.0),
    Kind("agent", 0.2, 20, (128, 512), 1, 0.0, 8, 16, 4, turns=12, pause=2.0),
)

HOT = (Kind("document", 1.0, 1, (40, 40), 5, 0.6, 128, 6, 8, turns=2, pause=5.0),)
"""Most chats begin with one of five long documents."""


class Zipf:
    """Numbers below `size`: the k-th is drawn 1/k times as often as the first."""

    def __init__(self, size: int) -> None:
        self._sums = list(accumulate(1 / (k + 1) for k in range(size)))

    def draw(self, rng: random.Random) -> int:
        return bisect(self._sums, rng.random() * self._sums[-1])


class Chat:
    """One conversation. `prompt` is its next prompt: the nodes of a tree, and the blocks of each.

    A node is a piece of a prompt together with all that is before it, so two prompts that have a node in
    common begin alike up to its end.
    """

    __slots__ = ("_keys", "_kind", "_rng", "answer", "num_turns", "prompt", "turn")

    def __init__(self, rng: random.Random, kind: Kind, start: list[tuple[int, int]], keys: tuple[Keys, Keys]):
        self._rng = rng
        self._kind = kind
        self._keys = keys
        self.prompt = start
        self.turn = 0
        self.num_turns = 1 + int(rng.expovariate(1 / (kind.turns - 1)))
        self.answer = blocks(rng, kind.answer_blocks)
        """Blocks of the next answer."""

    @property
    def keys(self) -> Keys:
        """What the pool's routing computes from the messages. From the second turn on they stay the same."""
        return self._keys[self.turn > 0]

    def pause(self) -> float:
        return self._rng.expovariate(1 / self._kind.pause)

    def answered(self, node: int) -> bool:
        """The answer and a further message, which become the new node, lengthen the prompt. False: the chat
        is over."""
        self.turn += 1
        self.prompt = [*self.prompt, (node, self.answer + blocks(self._rng, self._kind.message_blocks))]
        self.answer = blocks(self._rng, self._kind.answer_blocks)
        return self.turn < self.num_turns


def blocks(rng: random.Random, mean: int) -> int:
    return 1 + int(rng.expovariate(1 / (mean - 0.5)))


class Traffic:
    """Makes chats, and numbers for nodes."""

    def __init__(self, seed: int, kinds: tuple[Kind, ...]) -> None:
        self._rng = random.Random(seed)
        self._kinds = kinds
        self._shares = [kind.share for kind in kinds]
        self.nodes = count(1)
        self._systems = {kind.name: [self._system(kind) for _ in range(kind.systems)] for kind in kinds}
        self._zipf = {kind.name: (Zipf(kind.systems), Zipf(kind.first_messages)) for kind in kinds}
        self._popular: dict[tuple[int, int], tuple[int, int]] = {}

    @property
    def mean_turns(self) -> float:
        return sum(kind.share * kind.turns for kind in self._kinds)

    def _system(self, kind: Kind) -> tuple[int, int]:
        return next(self.nodes), self._rng.randint(*kind.system_blocks)

    def chats(self, per_second: float) -> Iterator[tuple[float, Chat]]:
        """Chats, and the seconds before each of them."""
        while True:
            yield self._rng.expovariate(per_second), self._chat()

    def _chat(self) -> Chat:
        rng = self._rng
        kind = rng.choices(self._kinds, self._shares)[0]
        systems, firsts = self._zipf[kind.name]
        system = self._systems[kind.name][systems.draw(rng)]
        if rng.random() < kind.popular:
            which = (system[0], firsts.draw(rng))
            first = self._popular.get(which)
            if first is None:
                first = self._popular[which] = next(self.nodes), blocks(rng, kind.first_blocks)
        else:
            first = next(self.nodes), blocks(rng, kind.first_blocks)
        own = random.Random(rng.getrandbits(64))
        return Chat(own, kind, [system, first], keys_of(system[0], first[0], own.getrandbits(64)))


def keys_of(system: int, first: int, second: int) -> tuple[Keys, Keys]:
    """The routing's keys at the first turn, and at the later ones. Texts stand for longer ones."""
    messages = [
        {"role": "system", "content": f"system {system}"},
        {"role": "user", "content": f"message {first}"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": f"message {second}"},
    ]
    early, late = (
        GenerationRequest(request_id="r", model="m", endpoint="chat", messages=tuple(messages[:length]))
        for length in (2, 4)
    )
    return prompt_keys(early), prompt_keys(late)
