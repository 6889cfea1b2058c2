"""Server-sent events, as bytes."""

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"


def event(data: bytes, name: str | None = None) -> bytes:
    """One event. `data` is a JSON document on one line."""
    if name is None:
        return b"data: " + data + b"\n\n"
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
