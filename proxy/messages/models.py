"""The models served, as the Messages API lists them."""

from datetime import UTC, datetime

from proxy.openai.answer import JSONObject


def model_object(name: str, started: int) -> JSONObject:
    """`started`: when the service started, in seconds of the Unix epoch."""
    created_at = datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": name, "display_name": name, "created_at": created_at}
