"""The models served, as the Messages API lists them."""

from datetime import UTC, datetime

from proxy.wire.openai.answer import JSONObject


def model_object(name: str, started: int, max_model_len: int | None) -> JSONObject:
    """`started`: when the service started, in seconds of the Unix epoch."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": max_model_len,
    }
