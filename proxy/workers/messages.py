"""The messages between the supervisor and the processes that serve. They go over the private connection of
`hooks.workers.process`, so that no key is on a command line or in the environment."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.settings.serve import ServeSettings


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a worker."""

    number: int
    """Tells the workers apart, from 1. A worker that replaces another one has its number."""
    settings: ServeSettings
    configuration: int
    """The number of times that the settings were read (`Deployment.number`)."""
    predecessor: str | None
    """The name of the process that had the number before. Its requests no longer count."""
    salt: bytes | None
    """The shared state's, if a worker has reported it (`State.salt`). Then the start needs no state."""
    folder: Path
    """It holds the files that the workers share. It goes with the supervisor."""
    sockets: tuple[tuple[int, ...], ...]
    """The file descriptors of the sockets that all workers share: those of the port, then those of the
    operator's port if there is one."""
    is_draining: bool = False
    """The service is about to stop (`Drain`)."""
    engine_process: Path | None = None
    """The socket of the process that runs models. None: there is none."""


@dataclass(frozen=True, slots=True)
class StartEngines:
    """The first message to the process that runs models."""

    log_level: str
    log_format: str
    socket: Path
    """It listens there."""


@dataclass(frozen=True, slots=True)
class EnginesReady:
    """The process that runs models accepts connections."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker accepts connections."""

    model: str
    """The name that requests may use."""
    names: str
    """All models, in words."""
    process: str
    """A name that no other process has (`Service.process`)."""
    salt: bytes
    """The shared state's."""
    needs_keys: bool
    """Whether requests need a key."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker cannot start."""

    reason: str


@dataclass(frozen=True, slots=True)
class AskAll:
    """A worker asks all other workers."""

    key: int
    """Tells the worker's questions apart."""
    question: Any
    """A value. Its type says who answers it (`proxy.service.peers`)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which workers will answer. It comes before their answers."""

    key: int
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Question:
    """The question, as the other workers get it."""

    asker: int
    """The number of the worker that asks."""
    key: int
    question: Any


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a `Question`."""

    number: int
    """On its way to the supervisor: the worker that asked. From there on: the worker that answers."""
    key: int
    value: Any


@dataclass(frozen=True, slots=True)
class Drain:
    """A question: from now on the workers say that they are not ready, and serve on."""


@dataclass(frozen=True, slots=True)
class WriteMetrics:
    """A question: the other workers copy their metrics to their files."""
