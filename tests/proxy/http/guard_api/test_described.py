"""`/openapi.json` has the protocols that are served, and their errors are as it says."""

import re
from typing import Any

import jsonschema
import orjson
import pytest

from engine.upstream.none import NoEngine
from hooks.builtin.pii import Pii
from proxy.http.app import ENDPOINTS
from proxy.http.guard_api.routes import APIS
from tests.proxy.conftest import Client, Serve

MODEL_PATHS = {path for _, path, *_ in ENDPOINTS}


async def described(client: Client, **headers: str) -> Any:
    return orjson.loads((await client.get("/openapi.json", headers=headers))[1])


@pytest.mark.parametrize("names", [[], ["moderations"], ["fms"], ["bedrock", "hooks"], [*APIS]], ids=str)
async def test_the_document_has_the_paths_that_are_served(serve: Serve, names: list[str]) -> None:
    client = await serve(NoEngine(), Pii(), guard_api=[{"name": name} for name in names])
    document = await described(client)
    expected = {path for name in names if name in APIS for path in APIS[name].PATHS}
    assert document["paths"].keys() - MODEL_PATHS == expected
    for path in expected:
        operation = document["paths"][path]["post"]
        assert operation["summary"].startswith("Judge ")
        body = operation["requestBody"]["content"]["application/json"]
        named = body["schema"]["$ref"].rpartition("/")[2]
        assert document["components"]["schemas"][named]["properties"]
    for path in {path for api in APIS.values() for path in api.PATHS} - expected:
        assert (await client.post(re.sub("{.*?}", "x", path), {}))[0] == 404


@pytest.mark.parametrize("name", APIS)
async def test_an_error_has_the_shape_that_the_document_says(serve: Serve, name: str) -> None:
    client = await serve(NoEngine(), Pii(), guard_api=[{"name": name}], api_key=["k1"])
    document = await described(client, Authorization="Bearer k1")
    for path in APIS[name].PATHS:
        responses = document["paths"][path]["post"]["responses"]
        for key in ("k1", "another"):
            asked = re.sub("{.*?}", "x", path)
            status, error, _ = await client.post(asked, {"unknown": 1}, headers={"x-api-key": key})
            answer = responses.get(str(status), responses.get("default"))
            schema = {**answer["content"]["application/json"]["schema"], "components": document["components"]}
            jsonschema.validate(error, schema)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate([], schema)
