"""A relay that has llm-guard read answers, as its example of streams does.

Once there are more than 30 characters, it gives all the text so far to `scan_output` at each piece. It ends
the answer when a scanner finds something. What no scanner reads is left out.

Run it with an environment that has llm-guard:
python llm_guard_relay.py --upstream http://127.0.0.1:9000 --port 8000 --pattern REGEX
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
from aiohttp import web
from llm_guard import scan_output
from llm_guard.output_scanners import Regex

MIN_LENGTH = 30
"""The example's own."""


class Relay:
    def __init__(self, upstream: str, scanners: Sequence[Any]) -> None:
        self._upstream = upstream
        self._scanners = scanners

    def app(self) -> web.Application:
        made = web.Application(client_max_size=2**24)
        made.router.add_get("/v1/models", self._models)
        made.router.add_post("/v1/chat/completions", self._chat)
        made.cleanup_ctx.append(self._session)
        return made

    async def _session(self, app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as self._http:
            yield

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    async def _scan(self, prompt: str, text: str) -> tuple[str, bool]:
        """The text as the scanners have it, and whether they found nothing."""
        sanitized, valid, _ = await asyncio.to_thread(scan_output, self._scanners, prompt, text, True)
        return sanitized, all(valid.values())

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = str(body["messages"][-1].get("content"))
        url = f"{self._upstream}/v1/chat/completions"
        async with self._http.post(url, json=body) as got:
            if not body.get("stream"):
                answer = await got.json()
                for choice in answer.get("choices") or ():
                    said, _ = await self._scan(prompt, choice["message"].get("content") or "")
                    choice["message"] = {"role": "assistant", "content": said}
                    choice["finish_reason"] = "stop"
                    choice.pop("logprobs", None)
                    choice.pop("token_ids", None)
                return web.json_response(answer, status=got.status)
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await self._stream(prompt, got, response)
            await response.write_eof()
            return response

    async def _stream(self, prompt: str, got: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        texts, sent = "", ""
        async for event in _events(got):
            choice = (event.get("choices") or [{}])[0]
            if choice.get("index"):
                continue  # the example has one choice, and reads its content alone
            texts += (choice.get("delta") or {}).get("content") or ""
            is_over = bool(choice.get("finish_reason"))
            if len(texts) <= MIN_LENGTH and not is_over:
                continue
            texts, is_valid = await self._scan(prompt, texts)
            more = texts[len(sent) :] if texts.startswith(sent) else ""
            sent += more
            delta = {"role": "assistant", "content": more}
            reason = ("stop" if is_over else None) if is_valid else "content_filter"
            event["choices"] = [{"index": 0, "delta": delta, "finish_reason": reason}]
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            if not is_valid:
                break
        await response.write(b"data: [DONE]\n\n")


async def _events(got: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in got.content:
        data = line.decode().removeprefix("data:").strip()
        if line.startswith(b"data:") and data != "[DONE]":
            yield json.loads(data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pattern", required=True, help="what the scanner takes out")
    options = parser.parse_args()
    relay = Relay(options.upstream, [Regex(patterns=[options.pattern])])
    web.run_app(relay.app(), host="127.0.0.1", port=options.port, handler_cancellation=True, print=None)


if __name__ == "__main__":
    main()
