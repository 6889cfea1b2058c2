"""No engine: for a server whose hooks judge texts for other gateways (`guard_api`), and which generates nothing."""

from engine.protocol import Deltas, EngineError, GenerationRequest
from engine.upstream.request_tracker import TrackedEngine


class NoEngine(TrackedEngine):
    """Refuses every request for a generation. Nothing is loaded for it."""

    async def generate(self, request: GenerationRequest) -> Deltas:
        raise EngineError("This server has no model (--engine none): its hooks judge texts.", status=501)
        yield  # makes this a generator, as the protocol has it
