"""`POST /tokenize` and `/detokenize`."""

from dataclasses import replace
from typing import Any

import pytest

from tests.helpers import ScriptedEngine
from tests.proxy.conftest import Serve, send


class CharacterTokenizer:
    """A token is a character; a chat's text is its messages between angle brackets."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [*([0] if add_special_tokens else []), *map(ord, text)]

    def apply_chat_template(self, messages: list[dict[str, Any]]) -> list[int]:
        return [ord(c) for message in messages for c in f"<{message['content']}>"]

    def decode(self, token_ids: list[int]) -> str:
        return "".join(map(chr, token_ids))


def engine() -> ScriptedEngine:
    engine: Any = ScriptedEngine(lambda request: [])
    engine.tokenizer = CharacterTokenizer()
    engine.info = replace(engine.info, vocab_size=128)
    return engine


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "ab"}, [0, 97, 98]),
        ({"prompt": "ab", "add_special_tokens": False}, [97, 98]),
        ({"messages": [{"role": "user", "content": "a"}]}, [60, 97, 62]),
    ],
)
async def test_a_text_or_a_chat_becomes_token_ids(
    serve: Serve, body: dict[str, Any], tokens: list[int]
) -> None:
    client = await serve(engine())
    status, answer, _ = await client.post("/tokenize", body)
    assert (status, answer) == (200, {"count": len(tokens), "max_model_len": 1024, "tokens": tokens})


async def test_token_ids_become_text(serve: Serve) -> None:
    client = await serve(engine())
    status, answer, _ = await client.post("/detokenize", {"tokens": [97, 98]})
    assert (status, answer) == (200, {"prompt": "ab"})


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/tokenize", b"{}", "give either prompt or messages"),
        ("/tokenize", b'{"prompt": "a", "messages": []}', "give either prompt or messages"),
        ("/detokenize", b'{"tokens": [-1]}', "greater than or equal to 0"),
        ("/detokenize", b'{"tokens": [128]}', "tokens: ids must be below 128."),
    ],
)
async def test_a_wrong_field_is_a_400(serve: Serve, path: str, body: bytes, message: str) -> None:
    client = await serve(engine())
    status, error = await send(client, path, body)
    assert status == 400
    assert message in error["message"]


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_an_engine_without_a_tokenizer_is_a_501(serve: Serve, path: str) -> None:
    client = await serve(ScriptedEngine(lambda request: []))
    body = b'{"prompt": "a"}' if path == "/tokenize" else b'{"tokens": [1]}'
    status, error = await send(client, path, body)
    assert (status, error["type"]) == (501, "server_error")
