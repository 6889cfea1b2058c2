"""`weir serve --engine canned --engine-options '{"text": "..."}'`: every answer is this text."""

from engine.protocol import Delta, Deltas, GenerationRequest, ModelInfo, Token
from engine.upstream.request_tracker import TrackedEngine


class CannedEngine(TrackedEngine):
    def __init__(self, *, text: str) -> None:
        super().__init__()
        self.info = ModelInfo()
        self._words = text.split(" ")

    async def generate(self, request: GenerationRequest) -> Deltas:
        with self._requests.track():
            for i, word in enumerate(self._words):
                text = f" {word}" if i else word
                yield Delta(text=text, tokens=(Token(id=i, text=text, raw=text.encode()),))
            yield Delta(finish_reason="stop")
