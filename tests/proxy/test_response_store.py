"""Stored responses: continued, read, forgotten, and kept from other callers."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import RequestError
from hooks import emit
from proxy.openai.response_input import InputItem
from proxy.response_store import Owner, ResponseStore, SizedItem, StoreOptions
from tests.helpers import Script, examples
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
    most = {"max_stored_responses": 5, "max_stored_bytes": 40_000}[bound]
    client = await serve(saying("a"), api_key=["one", "two"], **{bound: most})
    ids = [(await client.post(PATH, ASK, **bearer("two")))[1]["id"] for _ in range(2)]
    for _ in range(20):
        await client.post(PATH, ASK, **bearer("one"))
    assert [(await client.get(f"{PATH}/{one}", **bearer("two")))[0] for one in ids] == [200, 200]
    store = client.server.service.responses
    assert (store.num_responses if bound == "max_stored_responses" else store.memory) <= most


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
    for i in range(10):  # a key that nobody checks may be another one in each request
        await client.post(PATH, ASK, **bearer(str(i)))
    assert client.server.service.responses.num_responses == 5


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
    assert "max_messages" in body["error"]["message"]


async def test_a_stored_conversation_has_no_logprobs(serve: Serve) -> None:
    client = await serve(saying("a", "b"))
    _, body, _ = await client.post(PATH, {**ASK, **LOGPROBS})
    assert body["output"][0]["content"][0]["logprobs"]
    (shelf,) = client.server.service.responses._shelves.values()
    ((response, _),) = shelf.responses.values()
    assert orjson.loads(response.body) == body
    assert "logprobs" not in response.conversation[-1].item.model_dump_json()


def item(item_id: str | None, text: str = "a") -> SizedItem:
    return SizedItem.of(InputItem(id=item_id, role="user", content=text))  # type: ignore[arg-type]


def body(response_id: str, *item_ids: str) -> dict[str, Any]:
    message = {"type": "message", "role": "assistant"}
    output = [{**message, "id": one, "content": [{"type": "output_text", "text": "b"}]} for one in item_ids]
    return {"id": response_id, "output": output}


ANN = Owner("ann's address", "ann's key")


def reference(item_id: str) -> InputItem:
    return InputItem(type="item_reference", id=item_id)


def test_a_reference_looks_at_no_conversation() -> None:
    store = ResponseStore(StoreOptions())
    for i in range(20):
        store.put(ANN, tuple(item(f"item_{i}_{k}") for k in range(50)), body(f"resp_{i}", f"msg_{i}"))
    store._shelves[ANN.caller].responses = None  # type: ignore[assignment]
    found = store.conversation(
        None, [reference(f"item_{i}_{i}") for i in range(20)], ANN, max_items=20, max_bytes=10_000
    )
    assert [one.item.id for one in found] == [f"item_{i}_{i}" for i in range(20)]


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "get", "remove"]), NAMES, st.integers(0, 9), st.lists(NAMES, max_size=3)
    )
)


@given(steps=STEPS)
@examples(200)
def test_the_index_has_what_is_stored_and_nothing_else(steps: list[tuple[str, str, int, list[str]]]) -> None:
    options = StoreOptions(
        max_stored_responses=5,
        max_stored_responses_per_caller=3,
        max_stored_bytes=20_000,
        max_stored_bytes_per_caller=12_000,
    )
    store = ResponseStore(options)
    for i, (step, caller, number, item_ids) in enumerate(steps):
        response_id, owner = f"resp_{number}", Owner(caller, str(number % 2))
        if step == "put":
            owner = Owner(caller, str(i % 2))
            store.put(owner, tuple(map(item, item_ids)), body(f"resp_{i}", f"msg_{i}"))
        elif store.get(response_id, owner) is not None and step == "remove":
            store.remove(response_id, owner)
        check(store, options)


def check(store: ResponseStore, options: StoreOptions) -> None:
    shelves = store._shelves.values()
    assert store.num_responses == sum(len(shelf.responses) for shelf in shelves)
    assert store.num_responses <= options.max_stored_responses
    assert store.memory == sum(shelf.memory for shelf in shelves) <= options.max_stored_bytes
    for caller, shelf in store._shelves.items():
        stored = {name: response for name, (response, _) in shelf.responses.items()}
        assert 0 < len(stored) <= options.max_stored_responses_per_caller
        assert shelf.memory == sum(response.memory for response in stored.values())
        assert shelf.memory <= options.max_stored_bytes_per_caller
        held = [(response.key, one.item.id) for response in stored.values() for one in response.conversation]
        assert shelf.items.keys() == set(held)
        for (key, item_id), holders in shelf.items.items():
            assert holders.keys() <= stored.keys()
            (found,) = store.conversation(
                None, [reference(item_id)], Owner(caller, key), max_items=9, max_bytes=10_000
            )
            assert found.item.id == item_id
        with pytest.raises(RequestError):
            store.conversation(None, [reference("none")], Owner(caller, "0"), max_items=9, max_bytes=10_000)
