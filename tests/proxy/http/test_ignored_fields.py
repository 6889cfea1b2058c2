"""An answer's header names the fields that it ignores, streamed or not."""

from typing import Any

import pytest

from engine.protocol.demo import MODEL_DIR
from engine.protocol.fields.support import FieldSupport
from engine.text.tokenizer import LocalTokenizer
from hooks import Chunk, Verdict, emit
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Serve, hello

LOGPROBS = {"logprobs": True, "top_logprobs": 2}


class Withholds:
    withholds_alternatives = True

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending, alternatives=False)


def called_with(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "c", "content": "1"}
    return {"messages": [*CHAT["messages"], {"role": "assistant", "tool_calls": [call]}, result]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        ("chat/completions", {}, None),
        ("chat/completions", LOGPROBS, "top_logprobs"),
        ("completions", {"prompt": "Hi", "logprobs": 2}, None),  # they have no such field
        ("chat/completions", called_with('{"a": 1}'), None),
        ("chat/completions", called_with("null"), "messages.tool_calls.function.arguments"),
    ],
)
async def test_the_header_names_what_is_ignored(
    serve: Serve, path: str, body: dict[str, Any], ignored: str | None, stream: bool
) -> None:
    engine = ScriptedEngine(hello)
    engine.fields = FieldSupport(honoured=frozenset({"logprobs"}))
    engine.tokenizer = LocalTokenizer.load(str(MODEL_DIR))  # type: ignore[assignment]
    client = await serve(engine, Withholds())
    asked = {"model": "m", **(CHAT if path.startswith("chat") else {}), **body, "stream": stream}
    async with client.http.post(f"{client.url}/v1/{path}", json=asked) as response:
        assert (response.status, response.headers.get("X-Weir-Ignored-Fields")) == (200, ignored)
