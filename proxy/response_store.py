"""Stored responses, which `previous_response_id` continues. They are in memory, and end with the process.

Each caller has a shelf of responses. A full shelf drops the response that its caller has not used for the
longest time. If all shelves together are too large, the largest one gives way, so that no caller drives out
another caller's few responses.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field

from engine.protocol import RequestError
from proxy.openai.response_input import InputItem

OBJECT = 1024
"""Bytes that an item or a part takes beside its JSON, about."""

AtLeastOne = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]


class StoreOptions(BaseModel):
    """The bounds of the responses that are kept in memory."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    max_stored_responses: NotNegative = 10_000
    """Responses kept in memory for previous_response_id, the latest used; 0: none"""
    max_stored_responses_per_caller: AtLeastOne = 1000
    """Responses kept of one caller"""
    max_stored_bytes: AtLeastOne = 256 * 1024 * 1024
    """Bytes of all responses kept, about, with the conversations that they end"""
    max_stored_bytes_per_caller: AtLeastOne = 32 * 1024 * 1024
    """Bytes of the responses kept of one caller, about"""


class Owner(NamedTuple):
    """Who stored a response. Nobody else reads it."""

    caller: str
    """The caller that shares the store with others (`proxy.access.callers`)."""
    key: str
    """A digest of the key in the request, which a server without keys does not check. It tells apart callers
    at one address."""


class SizedItem(NamedTuple):
    item: InputItem
    size: int
    """Bytes of its JSON."""

    @classmethod
    def of(cls, item: InputItem) -> "SizedItem":
        return cls(item, len(item.model_dump_json()))

    @property
    def memory(self) -> int:
        """Bytes that it takes, about."""
        num_parts = len(self.item.content or ()) + len(self.item.output or ())
        return self.size + OBJECT * (1 + num_parts)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it was released, and the conversation that ends with it."""

    key: str
    """Its owner's."""
    body: bytes
    """The response object, as JSON."""
    conversation: tuple[SizedItem, ...]
    """All items, with the output of this response and without its instructions."""

    @property
    def memory(self) -> int:
        """Bytes that it takes, about. Responses of one conversation share items; each counts all of them."""
        return len(self.body) + sum(item.memory for item in self.conversation)


_Id = tuple[str, str]
"""An owner's key, and the id of one of its responses or items."""


@dataclass(slots=True)
class _Shelf:
    """One caller's responses, the latest used last, and their items by id."""

    memory: int = 0
    responses: OrderedDict[_Id, tuple[StoredResponse, int]] = field(default_factory=OrderedDict)
    """Each with the bytes that it takes."""
    items: dict[_Id, dict[_Id, SizedItem]] = field(default_factory=dict)
    """By the item's id, and then by the response's."""

    @property
    def num_responses(self) -> int:
        return len(self.responses)

    def put(self, response_id: _Id, response: StoredResponse, memory: int) -> None:
        self.responses[response_id] = response, memory
        self.memory += memory
        for item_id, sized in _with_ids(response):
            self.items.setdefault(item_id, {})[response_id] = sized

    def remove(self, response_id: _Id) -> int:
        """Returns the bytes that it took."""
        response, memory = self.responses.pop(response_id)
        self.memory -= memory
        for item_id, _ in _with_ids(response):
            holders = self.items.get(item_id, {})
            holders.pop(response_id, None)
            if not holders:
                self.items.pop(item_id, None)
        return memory


def _with_ids(response: StoredResponse) -> Iterable[tuple[_Id, SizedItem]]:
    return (((response.key, one.item.id), one) for one in response.conversation if one.item.id is not None)


class ResponseStore:
    """Responses by caller and id."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = options
        self._shelves: dict[str, _Shelf] = {}
        self.num_responses = 0
        self.memory = 0
        """Bytes of all responses, about."""

    @property
    def keeps(self) -> bool:
        """Whether any response is kept."""
        return self._options.max_stored_responses > 0

    def put(self, owner: Owner, conversation: tuple[SizedItem, ...], body: dict[str, Any]) -> None:
        """Store the response object `body`, which continues `conversation`. A response that is larger than
        its owner's whole share is not kept."""
        output = [SizedItem.of(InputItem.model_validate(_without_logprobs(item))) for item in body["output"]]
        response = StoredResponse(owner.key, orjson.dumps(body), (*conversation, *output))
        memory = response.memory
        options = self._options
        if memory > min(options.max_stored_bytes_per_caller, options.max_stored_bytes):
            return
        self._shelves.setdefault(owner.caller, _Shelf()).put((owner.key, body["id"]), response, memory)
        self.num_responses += 1
        self.memory += memory
        self._make_room(owner.caller)

    def _make_room(self, caller: str) -> None:
        """Drop the caller's responses beyond its share, and then those of the largest shelves."""
        options, shelf = self._options, self._shelves[caller]
        while shelf.num_responses > options.max_stored_responses_per_caller:
            self._drop(caller)
        while shelf.memory > options.max_stored_bytes_per_caller:
            self._drop(caller)
        while self.num_responses > options.max_stored_responses:
            self._drop(self._largest(attrgetter("num_responses")))
        while self.memory > options.max_stored_bytes:
            self._drop(self._largest(attrgetter("memory")))

    def _largest(self, size: Callable[[_Shelf], int]) -> str:
        return max(self._shelves, key=lambda caller: size(self._shelves[caller]))

    def _drop(self, caller: str, response_id: _Id | None = None) -> None:
        """Remove a response. None: the one that its caller has not used for the longest time."""
        shelf = self._shelves[caller]
        self.memory -= shelf.remove(response_id or next(iter(shelf.responses)))
        self.num_responses -= 1
        if not shelf.responses:
            del self._shelves[caller]

    def get(self, response_id: str, owner: Owner) -> StoredResponse | None:
        """The response that `owner` stored under `response_id`, if there is one."""
        shelf, own_id = self._shelves.get(owner.caller), (owner.key, response_id)
        if shelf is None or own_id not in shelf.responses:
            return None
        shelf.responses.move_to_end(own_id)
        return shelf.responses[own_id][0]

    def remove(self, response_id: str, owner: Owner) -> None:
        """Forget a response that `get` has found."""
        self._drop(owner.caller, (owner.key, response_id))

    def conversation(
        self,
        previous_id: str | None,
        items: Iterable[InputItem],
        owner: Owner,
        *,
        max_items: int,
        max_bytes: int,
    ) -> tuple[SizedItem, ...]:
        """The conversation of `previous_id`, then `items`, with references replaced by the stored items.

        Raises `RequestError` if a response or an item is not stored, for more than `max_items` items, and if
        the items that were stored have more than `max_bytes` bytes.
        """
        conversation = [*self._previous(previous_id, owner)]
        size = sum(sized.size for sized in conversation)
        for item in items:
            if item.type == "item_reference":
                conversation.append(self._item(item, owner))
                size += conversation[-1].size
            else:
                conversation.append(SizedItem.of(item))
            if size > max_bytes or len(conversation) > max_items:
                most = f"{max_items} items (max_messages)" if size <= max_bytes else f"{max_bytes} bytes"
                reason = f"input: the conversation is too long: at most {most} are taken."
                raise RequestError(reason, param="input", code="too_long")
        return tuple(conversation)

    def _previous(self, previous_id: str | None, owner: Owner) -> tuple[SizedItem, ...]:
        if previous_id is None:
            return ()
        previous = self.get(previous_id, owner)
        if previous is None:
            raise RequestError(
                f"Previous response with id '{previous_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return previous.conversation

    def _item(self, item: InputItem, owner: Owner) -> SizedItem:
        """The stored item that `item` refers to, as the latest response with it has it."""
        shelf = self._shelves.get(owner.caller)
        holders = {} if shelf is None else shelf.items.get((owner.key, item.id or ""), {})
        if not holders:
            raise RequestError(f"Item with id '{item.id}' not found.", param="input", status=404)
        return next(reversed(holders.values()))


def _without_logprobs(item: dict[str, Any]) -> dict[str, Any]:
    """The item without what a conversation does not need, which may be many times as long as its text."""
    if "content" not in item:
        return item
    parts = [{k: v for k, v in part.items() if k != "logprobs"} for part in item["content"]]
    return {**item, "content": parts}
