"""`POST /tokenize` and `/detokenize`."""

from dataclasses import replace
from typing import Any

import pytest

from engine.protocol import GenerationRequest
from proxy.wire.openai.endpoint_fields import HEADER
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import Serve, send

USER = {"role": "user", "content": "a"}
TOOL = {"type": "function", "function": {"name": "f"}}


class CharacterTokenizer:
    """A token is a character; a chat's text is its messages between angle brackets."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [*([0] if add_special_tokens else []), *map(ord, text)]

    def encode_chat(self, request: GenerationRequest, *, add_special_tokens: bool = False) -> list[int]:
        text = "".join(f"<{message['content']}>" for message in request.messages)
        if request.extra.get("continue_final_message"):
            text = text.removesuffix(">")
        return self.encode(text + "t" * len(request.tools), add_special_tokens=add_special_tokens)

    def string(self, token_id: int) -> str:
        return f"c{token_id}"

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
        ({"prompt": "ab", "add_special_tokens": None, "unknown": 1}, [0, 97, 98]),
        ({"messages": [USER]}, [60, 97, 62]),
        ({"messages": [USER], "add_special_tokens": True}, [0, 60, 97, 62]),
        ({"messages": [USER], "continue_final_message": True}, [60, 97]),
        ({"messages": [USER], "tools": [TOOL], "add_generation_prompt": True}, [60, 97, 62, 116]),
    ],
)
async def test_a_text_or_a_chat_becomes_token_ids(
    serve: Serve, body: dict[str, Any], tokens: list[int]
) -> None:
    client = await serve(engine())
    status, answer, _ = await client.post("/tokenize", body)
    assert (status, answer) == (200, {"count": len(tokens), "max_model_len": 1024, "tokens": tokens})


async def test_the_tokens_strings_come_if_asked_for(serve: Serve) -> None:
    client = await serve(engine())
    for asked, strings in ((True, {"token_strs": ["c0", "c97"]}), (False, {})):
        _, answer, _ = await client.post("/tokenize", {"prompt": "a", "return_token_strs": asked})
        assert answer == {"count": 2, "max_model_len": 1024, "tokens": [0, 97], **strings}


async def test_a_field_without_effect_is_named(serve: Serve) -> None:
    client = await serve(engine())
    _, _, headers = await client.post(
        "/tokenize", {"prompt": "a", "unheard_of": 1, "add_special_tokens": True}
    )
    assert headers[HEADER] == "unheard_of"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"chat_template": "{{ 1 }}"}, "chat_template"),  # contract 7.3
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
        ({"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
    ],
)
async def test_what_no_tokenizer_honours_is_a_400(serve: Serve, fields: dict[str, Any], param: str) -> None:
    client = await serve(engine())
    status, body, _ = await client.post("/tokenize", {"messages": [USER], **fields})
    assert (status, body["error"]["param"]) == (400, param)


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
