"""Stored responses, which `previous_response_id` continues, and the conversations that they end."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from engine.protocol import RequestError
from proxy.settings.storage import StateOptions
from proxy.storage.shared.protocol import Owner, State, StoredResponse
from proxy.wire.openai.response_input import InputItem


class SizedItem(NamedTuple):
    item: InputItem
    json: bytes

    @classmethod
    def of(cls, item: InputItem) -> "SizedItem":
        return cls(item, item.model_dump_json().encode())

    @classmethod
    def read(cls, json: bytes) -> "SizedItem":
        return cls(InputItem.model_validate_json(json), json)


Conversation = tuple[SizedItem, ...]


class ResponseStore:
    """Responses by caller and id. Methods raise `StateError` if the state does not answer."""

    def __init__(self, options: StateOptions, state: State) -> None:
        self._options = options
        self._state = state

    @property
    def keeps(self) -> bool:
        """Whether any response is kept."""
        return self._options.max_stored_responses > 0

    async def put(self, owner: Owner, conversation: Conversation, body: dict[str, Any]) -> None:
        """Store the response object `body`, which continues `conversation`. A response that is larger than
        its owner's whole share is not kept."""
        items = continued(conversation, body)
        ids = {_name(one.item.id): place for place, one in enumerate(items) if one.item.id is not None}
        response = StoredResponse(orjson.dumps(body), b"\n".join(one.json for one in items))
        await self._state.put(owner, _name(body["id"]), response, ids)

    async def get(self, response_id: str, owner: Owner) -> bytes | None:
        """The response object that `owner` stored under `response_id`, as JSON."""
        found = await self._state.get(owner, _name(response_id))
        return None if found is None else found.body

    async def remove(self, response_id: str, owner: Owner) -> bool:
        """Forget a response. Returns whether it was there."""
        return await self._state.remove(owner, _name(response_id))

    async def conversation(
        self,
        previous_id: str | None,
        items: Iterable[InputItem],
        owner: Owner,
        *,
        max_items: int,
        max_bytes: int,
        recalled: Conversation | None = None,
    ) -> Conversation:
        """The conversation of `previous_id`, then `items`, with references replaced by the stored items.
        `recalled`: the conversation of `previous_id`, if it is at hand.

        Raises `RequestError` if a response or an item is not stored, for more than `max_items` items, and if
        the items that were stored have more than `max_bytes` bytes.
        """
        stored = [one.json for one in recalled] if recalled else await self._previous(previous_id, owner)
        size, num_items = sum(map(len, stored)), len(stored)
        _check(num_items, max_items, size, max_bytes)
        conversation = [*recalled] if recalled else [SizedItem.read(json) for json in stored]
        for item in items:
            if item.type == "item_reference":
                conversation.append(SizedItem.read(await self._item(item, owner)))
                size += len(conversation[-1].json)
            else:
                conversation.append(SizedItem.of(item))
            _check(len(conversation), max_items, size, max_bytes)
        return tuple(conversation)

    async def _previous(self, previous_id: str | None, owner: Owner) -> list[bytes]:
        if previous_id is None:
            return []
        previous = await self._state.get(owner, _name(previous_id))
        if previous is None:
            raise RequestError(
                f"Previous response with id '{previous_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return previous.items.split(b"\n")

    async def _item(self, item: InputItem, owner: Owner) -> bytes:
        found = await self._state.item(owner, _name(item.id or ""))
        if found is None:
            raise RequestError(f"Item with id '{item.id}' not found.", param="input", status=404)
        return found


def continued(conversation: Conversation, body: Mapping[str, Any]) -> Conversation:
    """The conversation with the output of the response object `body`."""
    output = (SizedItem.of(InputItem.model_validate(_without_logprobs(item))) for item in body["output"])
    return (*conversation, *output)


def _check(num_items: int, max_items: int, size: int, max_bytes: int) -> None:
    if size > max_bytes or num_items > max_items:
        most = f"{max_items} items" if size <= max_bytes else f"{max_bytes} bytes"
        reason = f"input: the conversation is too long: at most {most} are taken."
        raise RequestError(reason, param="input", code="too_long")


def _name(given: str) -> str:
    """A short name of an id that a client may have chosen, without characters that a database refuses."""
    return hashlib.blake2b(given.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _without_logprobs(item: dict[str, Any]) -> dict[str, Any]:
    """The item without logprobs, which may be many times as long as its text."""
    if "content" not in item:
        return item
    parts = [{k: v for k, v in part.items() if k != "logprobs"} for part in item["content"]]
    return {**item, "content": parts}
