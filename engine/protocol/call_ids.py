"""The ids of tool calls that clients get.

The service makes them: an upstream's own id is text that no hook has seen. They follow from the request and
the call's place, so an engine knows them too.
"""

import hashlib


def call_key(request_id: str, output_index: int, call_index: int) -> str:
    """The part of a call's id after its prefix. `request_id` is unguessable, and so is the key.

    `call_index`: the engine's own, `ToolCall.index`.
    """
    place = f"{request_id} {output_index} {call_index}".encode()
    return hashlib.blake2b(place, digest_size=16).hexdigest()


def key_in(call_id: str) -> str:
    """The key in an id that a client sends back: `toolu_KEY`, `call-KEY`. Other text for other ids."""
    return call_id.replace("-", "_").rpartition("_")[2]
