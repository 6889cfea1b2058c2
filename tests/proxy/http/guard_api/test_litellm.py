"""LiteLLM's guardrail protocol on a real socket."""

from typing import Any

from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from engine.upstream.none import NoEngine
from tests.proxy.conftest import Client, Serve

PATH = "/beta/litellm_basic_guardrail_api"


async def ask(client: Client, **fields: Any) -> Any:
    body = {"input_type": "response", "texts": [], "request_data": {}, "litellm_call_id": "c1", **fields}
    status, answer, _ = await client.post(PATH, body)
    assert status == 200, answer
    return answer


async def test_a_stream_over_rounds(serve: Serve) -> None:
    client = await serve(NoEngine(), Pii(prompt="redact"), Phrases(["blue bird"], action="terminate"), guard_api=["litellm"])
    text = "Write to ada@example.com today, all is fine."
    for i in range(1, len(text) + 1):
        print(i, await ask(client, texts=[text[:i]]))
    print(await ask(client, texts=[text + " the blue bird sings"]))
    print(await ask(client, input_type="request", texts=["I am ada@example.com"]))
    print(await client.post(PATH, {"input_type": "reqst"}))
    assert 0
