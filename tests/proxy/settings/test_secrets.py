"""A secret of a settings file is never the name of a variable, and an upstream's key may be in one."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import ValidationError

from engine.upstream.address import UpstreamConfig
from proxy.deployment.checks.settings import check
from proxy.deployment.engines import make_engine
from proxy.settings.model import ModelSettings
from proxy.settings.serve import load_settings
from tests.helpers import pooled

URL = "http://127.0.0.1:9/v1"
KEYS = [
    ("os.environ/HUNTER2", "os.environ/NAME"),
    ("${HUNTER2}", "${NAME}"),
    ("$HUNTER2", "$NAME"),
    ("${HUNTER2:-none}", "${NAME}"),
]


@pytest.mark.parametrize(("secret", "form"), KEYS)
@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"upstream": [{"url": URL}, {"url": URL, "api_key": "SECRET"}]}, "upstream[1].api_key"),
        ({"upstream": {"url": URL, "api_key": "SECRET"}}, "upstream[0].api_key"),
        ({"models": {"a": {"upstream": {"url": URL, "api_key": "SECRET"}}}}, "models.a.upstream[0].api_key"),
        ({"models": {"a": {"upstream": URL, "upstream_api_key": "SECRET"}}}, "models.a.upstream_api_key"),
        ({"upstream": URL, "upstream_api_key": "SECRET"}, "upstream_api_key"),
        ({"upstream": URL, "api_key": "SECRET"}, "api_key[0]"),
        ({"upstream": URL, "api_key": ["k", "SECRET"]}, "api_key[1]"),
        ({"upstream": URL, "admin_key": "k, SECRET"}, "admin_key[1]"),
        ({"upstream": URL, "store": "SECRET"}, "store"),
        (
            {"upstream": URL, "ssl_certfile": "c.pem", "ssl_keyfile_password": "SECRET"},
            "ssl_keyfile_password",
        ),
    ],
    ids=str,
)
def test_a_secret_that_names_a_variable_is_refused(
    content: dict[str, Any], place: str, secret: str, form: str, tmp_path: Path
) -> None:
    """The name would be sent, or accepted, as the key itself."""
    file = tmp_path / "weir.yaml"
    file.write_text(repr({"engine": "openai", **content}).replace("SECRET", secret))
    with pytest.raises(SystemExit) as left:
        load_settings(["--config", str(file)])
    told = f"{place}: no variable is read here, and {form} would be used as it is; "
    assert f"the settings are wrong\n  {told}" in str(left.value)
    assert "HUNTER2" not in str(left.value)

    given = eval(file.read_text(), {})  # what was written above
    (fault,) = (str(one) for one in check(given) if form in one.text)
    assert fault.startswith(told)
    assert "HUNTER2" not in fault
    assert len({one.place for one in check(given)}) == len(check(given))


@pytest.mark.parametrize(
    "url", [{"url": "http://me:${HUNTER2}@h/v1"}, "http://me:${HUNTER2}@h/v1"], ids=["in a group", "alone"]
)
def test_a_password_of_a_url_that_names_a_variable_is_refused(url: Any) -> None:
    (fault,) = check({"engine": "openai", "upstream": [url], "state": None})
    assert "${NAME} would be used as it is" in fault.text
    assert "HUNTER2" not in str(fault)


@pytest.mark.parametrize("secret", ["sk-$x", "$2b$12$abc", "a$b", "os.environ", "$", "$1"])
def test_other_secrets_may_have_these_characters(secret: str, tmp_path: Path) -> None:
    file = tmp_path / "weir.yaml"
    file.write_text(repr({"engine": "openai", "upstream": {"url": URL, "api_key": secret}}))
    (upstream,) = load_settings(["--config", str(file)]).base_model.upstream
    assert upstream.key(None) == secret


def test_a_variable_may_begin_with_a_dollar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a file names variables: in the environment, this is a key."""
    monkeypatch.setenv("WEIR_UPSTREAM_API_KEY", "$ecret")
    settings = load_settings(["--engine", "openai", "--upstream", URL]).base_model
    assert settings.upstream_api_key is not None
    assert settings.upstream_api_key.get_secret_value() == "$ecret"


async def test_each_upstream_gets_the_key_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    async def answer(http: web.Request) -> web.Response:
        seen.append(http.headers.get("Authorization"))
        return web.json_response({"data": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    monkeypatch.setenv("UP1", "hunter2")
    monkeypatch.setenv("UP2", "hunter3")
    async with TestServer(app) as one, TestServer(app) as two, TestServer(app) as three:
        urls = [str(server.make_url("/v1")) for server in (one, two, three)]
        upstream: Any = [
            {"url": urls[0], "api_key_env": "UP1"},
            {"url": urls[1], "api_key_env": "UP2"},
            urls[2],
        ]
        engine = make_engine(pooled(upstream=upstream, upstream_api_key="common"))
        await engine.start()
        await engine.aclose()
    assert {"Bearer hunter2", "Bearer hunter3", "Bearer common"} == set(seen)


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_keeps_the_server_from_starting(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upstream would be asked without a key, or with the key of another provider."""
    monkeypatch.delenv("UP1", raising=False)
    if value is not None:
        monkeypatch.setenv("UP1", value)
    upstream = {"url": "http://me:hunter2@h:8001/v1", "api_key_env": "UP1"}
    content: dict[str, Any] = {"engine": "openai", "upstream": [upstream], "upstream_api_key": "k"}
    reason = "api_key_env of the upstream h:8001 names a variable that is not set"
    with pytest.raises(ValueError, match=f"^{reason}$"):
        make_engine(ModelSettings(**content))
    assert [str(fault) for fault in check(content)] == [f"upstream[0]: {reason}"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"api_key_env": "sk-hunter2"}, "this must be the name of a variable"),
        ({"api_key_env": "A", "api_key": "hunter2"}, "has an api_key too"),
    ],
)
def test_a_wrong_name_of_a_variable_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        UpstreamConfig(url=URL, **given)
    fault, *_ = check({"engine": "openai", "upstream": [{"url": URL, **given}]})
    assert reason in fault.text
    assert "hunter2" not in str(fault)
