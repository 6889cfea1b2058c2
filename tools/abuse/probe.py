"""What a server holds, asked from outside: its tasks and objects, and the engine's requests and blocks."""

import aiohttp
import orjson

PROBE = "tools/abuse/hooks.py:Probe"
"""The hook that answers. A server allows it with `--allowed-hook`, and a request names it."""
GAUGES = ("weir_num_requests_running", "weir_num_requests_waiting", "weir_kv_blocks_used")


async def counts(url: str, http: aiohttp.ClientSession, key: str) -> dict[str, int]:
    """Tasks and objects of the service's process (`hooks.Probe`)."""
    body = {"messages": [{"role": "user", "content": "?"}], "hooks": [PROBE]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with http.post(url + "/v1/chat/completions", data=orjson.dumps(body), headers=headers) as response:
        answer = await response.read()
    if response.status != 200:
        raise RuntimeError(answer.decode())
    found: dict[str, int] = orjson.loads(orjson.loads(answer)["choices"][0]["message"]["content"])
    return found
