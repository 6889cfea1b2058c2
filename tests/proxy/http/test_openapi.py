"""`/openapi.json` describes each endpoint, and the fields of its body."""

import orjson
import pytest

from proxy.http import app
from proxy.http.app import ENDPOINTS
from proxy.http.openapi import Operation, openapi
from proxy.wire.openai.tokens import DetokenizeRequest
from tests.helpers import ScriptedEngine, make_deltas
from tests.proxy.conftest import Serve


async def test_the_service_describes_all_its_endpoints(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])))
    api = orjson.loads((await client.get("/openapi.json"))[1])
    assert api["openapi"].startswith("3.")
    operations = {(method.upper(), path) for path, methods in api["paths"].items() for method in methods}
    assert operations == {(method, path) for method, path, *_ in ENDPOINTS}
    body = api["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]
    name = body["schema"]["$ref"].rpartition("/")[2]
    assert {"messages", "temperature", "stream"} <= set(api["components"]["schemas"][name]["properties"])


async def test_a_start_does_without_the_description(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(app, "_description", lambda added: made.append(added) or b"{}")
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])))
    assert not made
    assert (await client.get("/openapi.json"))[1] == b"{}"
    assert made


def test_a_body_has_its_model_and_may_be_refused() -> None:
    api = openapi([Operation("POST", "/detokenize", "Token ids' text", DetokenizeRequest)])
    operation = api["paths"]["/detokenize"]["post"]
    assert operation["summary"] == "Token ids' text"
    assert set(operation["responses"]) == {"200", "400"}
    assert "parameters" not in operation
    assert "tokens" in api["components"]["schemas"]["DetokenizeRequest"]["properties"]


def test_a_place_in_a_path_is_a_parameter_and_methods_share_the_path() -> None:
    path = "/v1/responses/{id}"
    api = openapi([Operation("GET", path, "Read", None), Operation("DELETE", path, "Forget", None)])
    assert set(api["paths"][path]) == {"get", "delete"}
    (parameter,) = api["paths"][path]["get"]["parameters"]
    assert parameter == {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    assert set(api["paths"][path]["get"]["responses"]) == {"200"}


def test_each_place_in_a_path_is_a_parameter() -> None:
    path = "/v1/responses/{id}/parts/{part}"
    operation = openapi([Operation("GET", path, "Read", None)])["paths"][path]["get"]
    assert [one["name"] for one in operation["parameters"]] == ["id", "part"]
