"""Stored responses: continued, read, forgotten, and kept from other callers."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from engine.protocol import RequestError
from hooks import emit
from proxy.service.stored_responses import ResponseStore, SizedItem
from proxy.settings.storage import StateOptions
from proxy.storage.connect import make_state
from proxy.storage.shared.protocol import Owner
from proxy.wire.openai.response_input import InputItem
from tests.helpers import Script
from tests.proxy.conftest import Serve
from tests.proxy.response_helpers import ASK, LOGPROBS, PATH, check_events, saying


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


def bearer(key: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


@pytest.mark.parametrize("bound", ["max_stored_responses", "max_stored_bytes"])
async def test_many_responses_of_one_caller_drive_out_its_own(serve: Serve, bound: str) -> None:
    most = {"max_stored_responses": 5, "max_stored_bytes": 20_000}[bound]
    client = await serve(saying("a"), api_key=["one", "two"], **{bound: most})
    ids = [(await client.post(PATH, ASK, **bearer("two")))[1]["id"] for _ in range(2)]
    others = [(await client.post(PATH, ASK, **bearer("one")))[1]["id"] for _ in range(20)]
    kept = [(await client.get(f"{PATH}/{one}", **bearer("one")))[0] == 200 for one in others]
    assert kept == sorted(kept), "the last ones"
    assert 0 < sum(kept) <= (3 if bound == "max_stored_responses" else 19)
    assert [(await client.get(f"{PATH}/{one}", **bearer("two")))[0] for one in ids] == [200, 200]


@pytest.mark.parametrize("bound", ["max_stored_responses_per_caller", "max_stored_bytes_per_caller"])
async def test_a_caller_has_a_share(serve: Serve, bound: str) -> None:
    most = {"max_stored_responses_per_caller": 3, "max_stored_bytes_per_caller": 12_000}[bound]
    client = await serve(saying("a"), **{bound: most})
    ids = [(await client.post(PATH, ASK))[1]["id"] for _ in range(10)]
    kept = [(await client.get(f"{PATH}/{one}"))[0] == 200 for one in ids]
    assert 0 < sum(kept) < 10
    assert kept == sorted(kept), "the last ones"


async def test_callers_without_checked_keys_read_their_own_and_share_by_address(serve: Serve) -> None:
    client = await serve(saying("a"), max_stored_responses_per_caller=5)
    _, body, _ = await client.post(PATH, ASK, **bearer("mine"))
    path = f"{PATH}/{body['id']}"
    assert (await client.get(path, **bearer("another")))[0] == 404
    assert (await client.get(path, **bearer("mine")))[0] == 200
    ids = [  # a key that nobody checks may be another one in each request
        (await client.post(PATH, ASK, **bearer(str(i))))[1]["id"] for i in range(10)
    ]
    kept = [(await client.get(f"{PATH}/{one}", **bearer(str(i))))[0] == 200 for i, one in enumerate(ids)]
    assert kept == [False] * 5 + [True] * 5
    assert (await client.get(path, **bearer("mine")))[0] == 404


async def test_a_response_larger_than_the_share_drives_out_nothing(serve: Serve) -> None:
    client = await serve(saying("a"), max_stored_bytes_per_caller=20_000)
    _, small, _ = await client.post(PATH, ASK)
    _, large, _ = await client.post(PATH, {**ASK, "input": "x" * 30_000})
    assert (await client.get(f"{PATH}/{small['id']}"))[0] == 200
    assert (await client.get(f"{PATH}/{large['id']}"))[0] == 404


async def test_references_to_a_long_item_are_bounded(serve: Serve) -> None:
    engine = saying("a")
    client = await serve(engine, max_body_size=50_000)
    long = {"type": "message", "id": "msg_long", "role": "user", "content": "x" * 20_000}
    await client.post(PATH, {**ASK, "input": [long]})
    reference = {"type": "item_reference", "id": "msg_long"}
    assert (await client.post(PATH, {**ASK, "input": [reference] * 2}))[0] == 200
    num_asked = len(engine.requests)
    status, body, _ = await client.post(PATH, {**ASK, "input": [reference] * 500})
    assert (status, body["error"]["param"], body["error"]["code"]) == (400, "input", "too_long")
    assert "at most 50000 bytes are taken" in body["error"]["message"]
    assert len(engine.requests) == num_asked


async def test_a_conversation_cannot_grow_without_end(serve: Serve) -> None:
    client = await serve(saying("a"), max_messages=5)
    body = (await client.post(PATH, ASK))[1]
    body = (await client.post(PATH, {**ASK, "previous_response_id": body["id"]}))[1]
    again = {**ASK, "previous_response_id": body["id"]}
    assert (await client.post(PATH, again))[0] == 200
    status, body, _ = await client.post(PATH, {**again, "input": [{"role": "user", "content": "a"}] * 2})
    assert (status, body["error"]["code"]) == (400, "too_long")
    assert "at most 5 items" in body["error"]["message"]


@pytest.fixture
async def store() -> AsyncIterator[ResponseStore]:
    options = StateOptions()
    state = make_state(options)
    await state.start()
    yield ResponseStore(options, state)
    await state.aclose()


ANN = Owner("ann's address", "ann's key")
LIMITS: dict[str, Any] = {"max_items": 9, "max_bytes": 10_000}


async def test_a_stored_conversation_has_no_logprobs(serve: Serve, store: ResponseStore) -> None:
    client = await serve(saying("a", "b"))
    _, body, _ = await client.post(PATH, {**ASK, **LOGPROBS})
    assert body["output"][0]["content"][0]["logprobs"]
    await store.put(ANN, (), body)
    assert orjson.loads(await store.get(body["id"], ANN) or b"") == body
    (item,) = await store.conversation(body["id"], [], ANN, **LIMITS)
    assert b"logprobs" not in item.json
    assert item.item.content is not None
    assert item.item.content[0].text == "ab"


@pytest.mark.parametrize("name", ["msg_1", "a:b\x00c", "", "x" * 5_000])
async def test_a_client_may_choose_any_id_for_an_item(store: ResponseStore, name: str) -> None:
    def item(text: str) -> SizedItem:
        return SizedItem.of(InputItem(id=name, role="user", content=text))

    for i in range(2):
        await store.put(ANN, (item(f"{i}"), item(f"{i} again")), {"id": f"resp_{i}", "output": []})
    reference = InputItem(type="item_reference", id=name)
    (found,) = await store.conversation(None, [reference], ANN, **LIMITS)
    assert found.json == item("1 again").json, "the latest"
    with pytest.raises(RequestError):
        await store.conversation(None, [reference], Owner(ANN.caller, "another key"), **LIMITS)
