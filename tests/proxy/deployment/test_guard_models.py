"""Models that only guards use, in servers on real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from engine.protocol import DeadEngineError, EngineError
from engine.protocol.demo import MODEL_DIR
from hooks.loading.loader import HookLoadError
from proxy.deployment.build import build
from proxy.deployment.checks.directory import directory_faults
from proxy.http.app import Server
from proxy.settings.serve import ServeSettings, has_own_models
from tests.helpers import until
from tests.weir import ROOT, run_weir

JUDGE = """
from contextlib import aclosing
from dataclasses import replace
from hooks import GenerationRequest, emit, terminate

class Judge:
    '''Has the model write a word about each answer, and says that it did.'''
    def __init__(self, model):
        self.name = model

    async def start(self, models):
        self.engine = await models.generator(self.name)

    async def __call__(self, chunk):
        if not chunk.is_final or chunk.aborted:
            return emit(chunk.pending)
        prompt = {"endpoint": "completions", "prompts": (chunk.text,)}
        request = GenerationRequest(request_id="judge", model="", **prompt)
        request = replace(request, sampling=replace(request.sampling, max_tokens=1))
        async with aclosing(self.engine.generate(request)) as deltas:
            words = [delta async for delta in deltas]
        return emit(chunk.pending + f" [judged by {self.name}]")

class Classifies:
    def __init__(self, model):
        self.name = model

    async def start(self, models):
        self.classifier = await models.classifier(self.name)

    def __call__(self, chunk):
        return emit(chunk.pending)
"""
Make = Callable[..., dict[str, Any]]
GUARD = {"only_guards": True, "model": str(MODEL_DIR), "num_threads": 1, "kv_cache_memory": 2**22}


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Configures a hook that asks for a model."""
    monkeypatch.chdir(tmp_path)  # where the server's store is
    (tmp_path / "judge.py").write_text(JUDGE)

    def make(model: str, cls: str = "Judge", **fields: Any) -> dict[str, Any]:
        return {"path": f"{tmp_path}/judge.py:{cls}", "args": {"model": model}, **fields}

    return make


def settings(*hooks: dict[str, Any], **models: Any) -> ServeSettings:
    models = {"main": {"engine": "echo"}, **models}
    return ServeSettings(port=0, shutdown_timeout=0, admin_key=["operator"], hooks=[*hooks], models=models)


@asynccontextmanager
async def serving(given: ServeSettings) -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    server = Server(await build(given), given)
    url = await server.start()
    try:
        async with aiohttp.ClientSession(url) as http:
            yield server, http
    finally:
        await server.stop()


async def ask(http: aiohttp.ClientSession, model: str = "main") -> tuple[int, Any]:
    """The status, and the text of the answer."""
    async with http.post("/v1/completions", json={"model": model, "prompt": "Hi"}) as response:
        answer = await response.json()
        return response.status, answer["choices"][0]["text"] if response.status == 200 else answer


async def get(http: aiohttp.ClientSession, path: str) -> str:
    async with http.get(path, headers={"Authorization": "Bearer operator"}) as response:
        assert response.status == 200
        return await response.text()


async def num_generated(http: aiohttp.ClientSession) -> float:
    """The tokens that the guard model has generated."""
    sample = 'weir_generation_tokens_total{model_name="guard"} '
    (line,) = (line for line in (await get(http, "/metrics")).splitlines() if line.startswith(sample))
    return float(line.removeprefix(sample))


def guards(server: Server) -> dict[str, Any]:
    return dict(server.service.deployments.current.guard_models.guards)


async def replace_by(server: Server, given: ServeSettings) -> None:
    """As a reload does, and wait until the deployment before is closed."""
    deployments = server.service.deployments
    newer = await build(given, deployments.current)
    await newer.start_hooks(deployments.current)
    await newer.start_engines(deployments.all)
    deployments.deploy(newer)
    await until(lambda: deployments.all == [newer])


async def test_hooks_share_a_model_that_no_request_can_name(hook: Make) -> None:
    unused = {"engine": "echo", "only_guards": True}
    given = settings(hook("guard", name="one"), hook("guard", name="two"), guard=GUARD, unused=unused)
    async with serving(given) as (server, http):
        assert await ask(http) == (200, "Hi [judged by guard] [judged by guard]")
        assert (await ask(http, "guard"))[0] == 404
        assert '"guard"' not in await get(http, "/v1/models")
        assert list(guards(server)) == ["guard"], "what no hook names is not loaded"
        assert '"ready"' in await get(http, "/ready")
        assert await num_generated(http) == 4, "two in the self-tests"
        models = json.loads(await get(http, "/admin/models"))["data"]
        assert [(one["name"], one["only_guards"], one["is_healthy"]) for one in models] == [
            ("main", False, True),
            ("guard", True, True),
        ]
        engine = guards(server)["guard"]
    with pytest.raises(EngineError, match="shut"):
        engine.check_health()


async def test_a_model_may_also_be_one_that_requests_name_or_a_folder(hook: Make) -> None:
    given = settings(hook("main"), hook(str(MODEL_DIR)))
    async with serving(given) as (server, http):
        assert (await ask(http))[1] == f"Hi [judged by main] [judged by {MODEL_DIR}]"
        assert list(guards(server)) == [str(MODEL_DIR)]


async def test_a_guard_model_outlives_a_reload_while_its_settings_are_the_same_and_a_hook_uses_it(
    hook: Make,
) -> None:
    given = settings(hook("guard"), guard=GUARD)
    async with serving(given) as (server, http):
        first = guards(server)["guard"]
        await replace_by(server, given)
        assert guards(server)["guard"] is first
        first.check_health()
        await replace_by(server, settings(hook("guard"), guard={**GUARD, "max_num_seqs": 3}))
        second = guards(server)["guard"]
        assert second is not first
        with pytest.raises(EngineError, match="shut"):
            first.check_health()
        assert (await ask(http))[1] == "Hi [judged by guard]"
        await replace_by(server, settings(guard=GUARD))
        assert guards(server) == {}
        with pytest.raises(EngineError, match="shut"):
            second.check_health()
        assert await num_generated(http) == 4, "no count goes back; three in the self-tests"


async def test_a_model_of_a_deployment_that_only_ends_its_requests_is_not_taken_over(hook: Make) -> None:
    """It may be closed at any time, even while the new deployment starts."""
    first, second = (settings(hook("guard"), guard={**GUARD, "max_num_seqs": num}) for num in (2, 3))
    async with serving(first) as (server, _):
        service = server.service
        retired = guards(server)["guard"]
        with service.deployment.running():
            for given in (second, first):
                newer = await build(given, service.deployments.current)
                await newer.start_hooks(service.deployments.current)
                await newer.start_engines(service.deployments.all)
                service.deployments.deploy(newer)
            assert guards(server)["guard"] is not retired
            retired.check_health()
        await until(lambda: service.deployments.all == [newer])
        guards(server)["guard"].check_health()


@pytest.mark.parametrize("is_missing", [False, True])
async def test_a_model_that_cannot_be_loaded_keeps_the_server_from_starting(
    hook: Make, tmp_path: Path, is_missing: bool
) -> None:  # contract 1.4, 1.9
    name = "gaurd" if is_missing else "guard"
    given = settings(hook(name, name="judge"), guard={**GUARD, "max_model_len": 10**6})
    server = Server(await build(given), given)
    with pytest.raises(HookLoadError) as error:
        await server.start()
    told = "did you mean 'guard'" if is_missing else "the model 'guard' cannot be loaded"
    assert "hook 'judge' could not be started" in str(error.value)
    assert told in str(error.value)


async def test_a_server_without_torch_says_how_to_install_it(
    hook: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: Any, **__: Any) -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    given = settings(hook("guard"), guard=GUARD)
    server = Server(await build(given), given)
    monkeypatch.setattr("proxy.deployment.engines._backend", make)
    with pytest.raises(HookLoadError, match=r"the model 'guard' needs torch: install the extra 'engine'"):
        await server.start()


async def test_a_start_that_is_cancelled_leaves_no_model(hook: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.local.engine import LocalEngine

    closed: list[LocalEngine] = []
    close = LocalEngine.aclose
    is_loading = asyncio.Event()

    async def start(engine: LocalEngine) -> None:
        is_loading.set()
        await asyncio.Event().wait()

    async def aclose(engine: LocalEngine) -> None:
        closed.append(engine)
        await close(engine)

    monkeypatch.setattr(LocalEngine, "start", start)
    monkeypatch.setattr(LocalEngine, "aclose", aclose)
    given = settings(hook("guard"), guard=GUARD)
    server = Server(await build(given), given)
    starting = asyncio.get_running_loop().create_task(server.start())
    await is_loading.wait()
    starting.cancel()
    await asyncio.wait([starting])
    assert len(closed) == 1


async def test_a_model_that_dies_fails_requests_and_then_the_process(
    hook: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.core.engine_core import EngineCore

    def die(core: EngineCore) -> Any:
        raise MemoryError

    async with serving(settings(hook("guard"), guard=GUARD)) as (server, http):
        monkeypatch.setattr(EngineCore, "step", die)
        status, answer = await ask(http)
        assert (status, answer["error"]["type"]) == (500, "guardrail_error")
        with pytest.raises(DeadEngineError):
            server.service.deployments.current.check_alive()


async def test_classifiers_stand_beside_generators(hook: Make) -> None:
    name = "weir-demo-stream-guard"
    async with serving(settings(hook(name, "Classifies"))) as (server, http):
        assert (await ask(http))[1] == "Hi"
        assert "risk_level" in guards(server)[name].labels
        assert f'weir_num_requests_running{{model_name="{name}"}} 0.0' in await get(http, "/metrics")
    for model, told in (("guard", "classif"), ("main", "cannot classify tokens"), ("e", "not engine 'echo'")):
        given = settings(hook(model, "Classifies"), guard=GUARD, e={"engine": "echo", "only_guards": True})
        server = Server(await build(given), given)
        with pytest.raises(HookLoadError, match=told):
            await server.start()


def test_the_defaults_of_served_models_are_not_for_guards() -> None:
    guard = {"model": "g", "only_guards": True}
    given = ServeSettings(seed=3, record=Path("r"), models={"a": {"engine": "local"}, "g": guard})
    assert (given.models["a"].local.seed, given.models["g"].local.seed) == (3, None)
    assert given.models["g"].record is None


@pytest.mark.parametrize("more", [{"aliases": ["b"]}, {"policy": "default"}])
def test_a_guard_model_has_neither_aliases_nor_a_policy(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no aliases and no policy"):
        settings(guard={**GUARD, **more})


def test_a_model_must_be_left_for_requests() -> None:
    (fault,) = directory_faults(ServeSettings(models={"g": GUARD}))
    assert "requests can name none" in fault.text


def test_workers_share_the_models_of_guards_too() -> None:
    models = {"a": {"engine": "echo"}, "g": GUARD}
    assert has_own_models(ServeSettings(workers=2, models=models))
    assert not has_own_models(ServeSettings(workers=2, models={"a": {"engine": "echo"}}))


def test_a_replay_takes_the_models_of_the_configuration(tmp_path: Path, hook: Make) -> None:
    content = {"models": {"main": {"engine": "echo"}, "guard": GUARD}, "hooks": [hook("guard")]}
    (tmp_path / "weir.yaml").write_text(yaml.safe_dump(content))
    recording = next((ROOT / "tests" / "recordings").glob("*.jsonl"))
    ran = run_weir("replay", recording, "--config", tmp_path / "weir.yaml")
    assert "[judged by guard]" in ran.stdout, ran.stderr
