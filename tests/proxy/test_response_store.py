"""Stored responses: continued, read, forgotten, and kept from other callers."""

from typing import Any

import orjson
import pytest

from hooks import emit
from tests.helpers import Script
from tests.proxy.conftest import Serve
from tests.proxy.response_helpers import ASK, PATH, check_events, saying


@pytest.mark.parametrize("stream", [True, False])
async def test_previous_response_id_continues_the_released_conversation(serve: Serve, stream: bool) -> None:
    engine = saying("my ", "hunter2")
    client = await serve(engine, Script(lambda c: emit(c.pending.replace("hunter2", "***"))))

    async def respond(**fields: Any) -> str:
        if stream:
            return str(check_events(await client.stream(PATH, {**ASK, **fields}))["id"])
        return str((await client.post(PATH, {**ASK, **fields}))[1]["id"])

    first = await respond(instructions="Only now.")
    second = await respond(input="And?", previous_response_id=first)
    await respond(input="So?", previous_response_id=second, instructions="Then.")
    said = {"role": "assistant", "content": "my ***"}
    assert list(engine.requests[-1].messages) == [
        {"role": "system", "content": "Then."},
        {"role": "user", "content": "Hi"},
        said,
        {"role": "user", "content": "And?"},
        said,
        {"role": "user", "content": "So?"},
    ]


async def test_a_stored_response_is_read_and_forgotten(serve: Serve) -> None:
    client = await serve(saying("a"))
    _, response, _ = await client.post(PATH, ASK)
    path = f"{PATH}/{response['id']}"
    status, body = await client.get(path)
    assert (status, orjson.loads(body)) == (200, response)
    async with client.http.delete(client.url + path) as answer:
        assert await answer.json() == {"id": response["id"], "object": "response", "deleted": True}
    assert (await client.get(path))[0] == 404
    async with client.http.delete(client.url + path) as answer:
        assert answer.status == 404


async def test_a_response_that_is_not_stored_is_unknown(serve: Serve) -> None:
    client = await serve(saying("a"))
    _, response, _ = await client.post(PATH, {**ASK, "store": False})
    assert response["store"] is False
    assert (await client.get(f"{PATH}/{response['id']}"))[0] == 404
    status, body, _ = await client.post(PATH, {**ASK, "previous_response_id": response["id"]})
    assert (status, body["error"]["code"]) == (400, "previous_response_not_found")
    assert body["error"]["param"] == "previous_response_id"


@pytest.mark.parametrize("capacity", [0, 2])
async def test_the_least_recently_used_is_forgotten_first(serve: Serve, capacity: int) -> None:
    client = await serve(saying("a"), max_stored_responses=capacity)
    ids = []
    for i in range(3):
        if i == 2:
            await client.get(f"{PATH}/{ids[0]}")
        _, response, _ = await client.post(PATH, ASK)
        assert response["store"] is bool(capacity)
        ids.append(response["id"])
    kept = [(await client.get(f"{PATH}/{one}"))[0] == 200 for one in ids]
    assert kept == ([True, False, True] if capacity else [False] * 3)


async def test_a_response_belongs_to_its_key(serve: Serve) -> None:
    client = await serve(saying("a"), api_key=["one", "two"])
    one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    _, response, _ = await client.post(PATH, ASK, headers=one)
    path, again = f"{PATH}/{response['id']}", {**ASK, "previous_response_id": response["id"]}
    item = {**ASK, "input": [{"type": "item_reference", "id": response["output"][0]["id"]}]}
    assert (await client.get(path))[0] == 401
    assert (await client.get(path, headers=two))[0] == 404
    assert (await client.post(PATH, again, headers=two))[0] == 400
    assert (await client.post(PATH, item, headers=two))[0] == 404
    async with client.http.delete(client.url + path, headers=two) as answer:
        assert answer.status == 404
    assert (await client.get(path, headers=one))[0] == 200
    assert (await client.post(PATH, again, headers=one))[0] == 200
    assert (await client.post(PATH, item, headers=one))[0] == 200
