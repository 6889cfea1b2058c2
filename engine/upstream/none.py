"""No engine: for a server whose hooks judge texts for other gateways (`guard_api`)."""

from engine.protocol import Delta, Deltas, EngineError, GenerationRequest
from engine.upstream.request_tracker import TrackedEngine


class NoEngine(TrackedEngine):
    """Refuses every request for a generation. Nothing is loaded for it."""

    async def generate(self, request: GenerationRequest) -> Deltas:
        for delta in self._refused():
            yield delta

    def _refused(self) -> list[Delta]:
        raise EngineError("This server has no model (--engine none): its hooks judge texts.", status=501)
