"""Hooks that the servers under attack run."""

import asyncio
import gc
import json

from hooks import Chunk, GenerationRequest, Refusal, Verdict, emit, refuse, rewind
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets


class PromptPii(Pii):
    """`pii`, for prompts too."""

    def __init__(self) -> None:
        super().__init__(prompt="redact")


class PromptSecrets(Secrets):
    """`secrets`, for prompts too."""

    def __init__(self) -> None:
        super().__init__(prompt="redact")


class TakesBack:
    """Takes an answer back at every twentieth character."""

    may_rewind = True

    def __call__(self, chunk: Chunk) -> Verdict:
        if len(chunk.text) % 20 == 19:
            return rewind("again")
        return emit(chunk.pending)


class Probe:
    """Answers a request that names it with counts of the process: tasks, and objects of some kinds.

    The hook is for `--allowed-hook`. It answers in place of the engine, so a look costs no tokens.
    """

    KINDS = ("StoredResponse", "GuardDriver", "Guard", "Sequence", "RequestHandler", "GenerationRequest")

    async def on_request(self, request: GenerationRequest) -> Refusal:
        gc.collect()
        counts = dict.fromkeys(self.KINDS, 0)
        for thing in gc.get_objects():
            if (kind := type(thing).__name__) in counts:
                counts[kind] += 1
        return refuse("probe", json.dumps({"tasks": len(asyncio.all_tasks()), **counts}))

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)
