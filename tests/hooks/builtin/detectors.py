"""A service that judges texts, on a loopback socket and a thread of its own."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from aiohttp import web

from tests.processes import WAIT_LIMIT


class DetectorServer:
    """Answers all APIs as told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.find: Callable[[str], list[tuple[int, int, str, float]]] = lambda text: [
            (*found.span(), "secret", 0.9) for found in re.finditer("hunter2", text)
        ]
        """(start, end, label, score) in a text."""
        self.masks = False
        """Whether the APIs that can do both mask what is found, and do not block the text."""
        self.answer: Callable[[], web.Response] | None = None
        """Makes another answer instead."""
        self.drops = 0
        """How many requests to hang up on before one is answered."""
        self.paths: list[str] = []
        self.bodies: list[Any] = []
        self.headers: list[Any] = []
        self.most_at_once = 0
        self.is_open = threading.Event()
        """Nobody is answered before it is set."""
        self.is_open.set()
        self._num_waiting = 0
        self.connections: set[Any] = set()

    @property
    def texts(self) -> list[str]:
        return [text for body in self.bodies for text in texts_of(body)]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.raw_path)
        self.bodies.append(await request.json())
        self.headers.append(request.headers)
        self.connections.add(request.transport)
        self._num_waiting += 1
        self.most_at_once = max(self.most_at_once, self._num_waiting)
        try:
            while not self.is_open.is_set():
                await asyncio.sleep(0.001)
        finally:
            self._num_waiting -= 1
        if self.drops:
            self.drops -= 1
            assert request.transport
            request.transport.abort()
        if self.answer is not None:
            return self.answer()
        body = self.bodies[-1]
        return web.json_response(next(self._answers[key](self, body) for key in self._answers if key in body))

    def _moderations(self, body: Any) -> Any:
        return {"id": "modr-1", "model": "m", "results": [self._moderation(text) for text in body["input"]]}

    def _moderation(self, text: str) -> Any:
        scores = {"secret": 0.01, "self-harm": 0.02}
        scores |= {label: score for _, _, label, score in self.find(text)}
        categories = {label: score >= 0.5 for label, score in scores.items()}
        return {"flagged": any(categories.values()), "categories": categories, "category_scores": scores}

    def _contents(self, body: Any) -> Any:
        return [
            [
                {
                    "start": start,
                    "end": end,
                    "text": text[start:end],
                    "detection": f"a {label}",
                    "detection_type": label,
                    "score": score,
                    "evidence": [],
                }
                for start, end, label, score in self.find(text)
            ]
            for text in body["contents"]
        ]

    def _litellm(self, body: Any) -> Any:
        (text,) = body["texts"]
        if not (found := self.find(text)):
            return {"action": "NONE", "blocked_reason": None, "texts": [text], "stream_holdback_chars": [3]}
        if self.masks:
            return {"action": "GUARDRAIL_INTERVENED", "texts": [self._masked(text)]}
        return {"action": "BLOCKED", "blocked_reason": found[0][2]}

    def _nemo(self, body: Any) -> Any:
        (text,) = texts_of(body)
        if not self.find(text):
            return {"status": "passed", "content": text}
        if self.masks:
            return {"status": "modified", "content": self._masked(text)}
        return {"status": "blocked", "content": "I can't answer that.", "rail": "secret"}

    def _bedrock(self, body: Any) -> Any:
        (text,) = texts_of(body)
        found = self.find(text)
        action = "ANONYMIZED" if self.masks else "BLOCKED"
        entities = [
            {"match": text[start:end], "type": label, "action": action, "detected": True}
            for start, end, label, _ in found
        ]
        output = self._masked(text) if self.masks else "Sorry, the model cannot answer this."
        covered = {"textCharacters": {"guarded": len(text), "total": len(text)}}
        return {
            "usage": {"topicPolicyUnits": 0, "sensitiveInformationPolicyUnits": 1},
            "action": "GUARDRAIL_INTERVENED" if found else "NONE",
            "outputs": [{"text": output}] if found else [],
            "assessments": [
                {
                    "sensitiveInformationPolicy": {"piiEntities": entities, "regexes": []},
                    "invocationMetrics": {"guardrailProcessingLatency": 3, "guardrailCoverage": covered},
                    "appliedGuardrailDetails": {"guardrailOrigin": ["REQUEST"], "guardrailOwnership": "SELF"},
                }
            ],
            "guardrailCoverage": covered,
        }

    def _masked(self, text: str) -> str:
        for start, end, label, _ in reversed(self.find(text)):
            text = text[:start] + "{" + label.upper() + "}" + text[end:]
        return text

    _answers: ClassVar = {
        "input": _moderations,
        "contents": _contents,
        "texts": _litellm,
        "content": _bedrock,
        "messages": _nemo,
    }
    """By a field of the request's body."""


def texts_of(body: Any) -> list[str]:
    """The texts that a request asks about."""
    if "content" in body:
        return [block["text"]["text"] for block in body["content"]]
    if "messages" in body:
        return [message["content"] for message in body["messages"]]
    texts: list[str] = body.get("input") or body.get("texts") or body["contents"]
    return texts


@contextmanager
def serving(server: DetectorServer) -> Iterator[str]:
    """Its base URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}"

    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(WAIT_LIMIT)
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(WAIT_LIMIT)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_LIMIT)
        loop.close()
