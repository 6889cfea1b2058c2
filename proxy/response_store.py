"""Stored responses, which `previous_response_id` continues. They are in memory, and end with the process."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.protocol import RequestError
from proxy.openai.response_input import InputItem


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it was released, and the conversation that ends with it."""

    owner: str
    """The caller (`proxy.access.auth.caller`). No other caller can read the response."""
    body: dict[str, Any]
    conversation: tuple[InputItem, ...]
    """All items, with the output of this response and without its instructions."""


class ResponseStore:
    """Responses by id. At most `capacity` are kept: those used last."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()

    def put(self, owner: str, conversation: tuple[InputItem, ...], body: dict[str, Any]) -> None:
        """Store the response object `body`, which continues `conversation`."""
        output = [InputItem.model_validate(item) for item in body["output"]]
        self._responses[body["id"]] = StoredResponse(owner, body, (*conversation, *output))
        while len(self._responses) > self.capacity:
            self._responses.popitem(last=False)

    def get(self, response_id: str, caller: str) -> StoredResponse | None:
        """The response that `caller` stored under `response_id`, if there is one."""
        found = self._responses.get(response_id)
        if found is None or found.owner != caller:
            return None
        self._responses.move_to_end(response_id)
        return found

    def remove(self, response_id: str) -> None:
        self._responses.pop(response_id, None)

    def conversation(
        self, previous_id: str | None, items: Iterable[InputItem], caller: str
    ) -> tuple[InputItem, ...]:
        """The conversation of `previous_id`, then `items`, with references replaced by the stored items.

        Raises `RequestError` if a response or an item is not stored.
        """
        conversation: tuple[InputItem, ...] = ()
        if previous_id is not None:
            previous = self.get(previous_id, caller)
            if previous is None:
                reason = f"Previous response with id '{previous_id}' not found."
                code = "previous_response_not_found"
                raise RequestError(reason, param="previous_response_id", code=code)
            conversation = previous.conversation
        return (*conversation, *(self._item(item, caller) for item in items))

    def _item(self, item: InputItem, caller: str) -> InputItem:
        if item.type != "item_reference":
            return item
        for response in reversed(self._responses.values()):
            if response.owner == caller:
                for stored in response.conversation:
                    if stored.id == item.id and stored.type != "item_reference":
                        return stored
        raise RequestError(f"Item with id '{item.id}' not found.", param="input", status=404)
