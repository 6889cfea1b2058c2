"""Which logits processors there are, and which a request has (contract 7.3, 7.4)."""

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from engine.config import LogitsProcessorConfig
from engine.logits_processors import (
    Context,
    ForcedTokenSequenceSpec,
    LogitsProcessorSpec,
    NamedProcessorSpec,
    PythonProcessorSpec,
    Stage,
    TokenIds,
)
from engine.logits_processors.load import ProcessorLoadError
from engine.logits_processors.registry import ProcessorRegistry
from engine.protocol import GenerationRequest, LogitsProcessorError, RequestError
from engine.recording import Recording
from engine.text.tokenizer import LocalTokenizer
from tests.engine.conftest import VOCAB_SIZE, completion
from tests.engine.logits_processors.processors import ALL, HERE, Likes, config, named


@pytest.fixture(scope="module")
def context(tokenizer: PreTrainedTokenizerFast) -> Context:
    return Context(LocalTokenizer(tokenizer), VOCAB_SIZE, (1,), torch.device("cpu"))


@pytest.fixture(scope="module")
def registry(context: Context) -> ProcessorRegistry:
    return ProcessorRegistry(context, ALL)


def names(registry: ProcessorRegistry, request: GenerationRequest) -> list[str]:
    return [one.name for one in registry.realize(request)[1]]


def request_of(*specs: LogitsProcessorSpec, **extra: Any) -> GenerationRequest:
    return completion((5, 6, 7), logits_processors=specs, extra=extra)


# Finding them.

MODULE = """
import torch

class Good:
    def __call__(self, input_ids, logits):
        logits[0] += 1

class Configured:
    def __init__(self, context, by=1.0):
        self.by = by

    def __call__(self, input_ids, logits):
        logits[0] += self.by

class Async:
    async def __call__(self, input_ids, logits):
        pass

class NoForm:
    def __call__(self, input_ids, scores):
        return scores

class NoKind:
    kind = "filter"
    def __call__(self, input_ids, logits): pass

class NoModel:
    Params = dict
    def __call__(self, input_ids, logits): pass

class NeedsMore:
    def __init__(self, file): pass
    def __call__(self, input_ids, logits): pass

class Unprepared:
    @classmethod
    def prepare(cls, context):
        raise ValueError("no such token")
    def __call__(self, input_ids, logits): pass

class BatchThatFails:
    def __init__(self):
        raise RuntimeError("no file here")
    def __call__(self, logits, params): return logits
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "acme_processors.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.delitem(sys.modules, "acme_processors", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "path", ["acme_processors.Good", "acme_processors:Good", "acme_processors.py:Good", "bad_words"]
)
def test_a_processor_is_found_by_import_path_or_short_name(path: str, folder: Path, context: Context) -> None:
    registry = ProcessorRegistry(context, [LogitsProcessorConfig("mine", path)])
    params = {"bad_words": ["fox"]} if path == "bad_words" else {}
    assert names(registry, request_of(NamedProcessorSpec("mine", params))) == ["mine"]


def test_an_installed_package_s_entry_points_are_registered(folder: Path, context: Context) -> None:
    meta = folder / "acme-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(
        "[weir.logits_processors]\nacme = acme_processors:Good\nother = acme_processors:Configured\n"
    )
    sys.path.append(str(folder))  # taken back with the rest of it
    registry = ProcessorRegistry(context)
    assert names(registry, request_of(*named(other={}, acme={}))) == ["acme", "other"]
    registry = ProcessorRegistry(context, [LogitsProcessorConfig("mine", "other", {"by": 5.0})])
    assert names(registry, request_of(*named(mine={}, acme={}))) == ["mine", "acme"]
    with pytest.raises(RequestError, match="no logits processor 'other'"):
        registry.realize(request_of(*named(other={})))


@pytest.mark.parametrize(
    ("path", "settings", "reason"),
    [
        ("no_such_package.Good", {}, "No module named 'no_such_package'"),
        ("acme_processors.Nothing", {}, "has no class 'Nothing'"),
        ("nothing", {}, "names no class"),
        ("acme_processors.Async", {}, "has no plain __call__"),
        ("acme_processors.NoForm", {}, "has no plain __call__"),
        ("acme_processors.NoKind", {}, "kind 'filter'"),
        ("acme_processors.NoModel", {}, "not a pydantic model"),
        ("acme_processors.NeedsMore", {}, "missing a required argument: 'file'"),
        ("acme_processors.Good", {"args": {"by": 2}}, "unexpected keyword argument 'by'"),
        ("acme_processors.Unprepared", {}, "no such token"),
        ("acme_processors.BatchThatFails", {}, "no file here"),
        ("acme_processors.Good", {"params": {"a": 1}}, "is not mandatory"),
        (
            "acme_processors.Good",
            {"params": {"a": 1}, "mandatory": True},
            "params.a: there is no such parameter",
        ),
        ("bad_words", {"params": {"bad_words": []}, "mandatory": True}, "params.bad_words"),
        (HERE + "Only", {"params": {"token_id": 400}, "mandatory": True}, "below 400"),
    ],
)
def test_what_cannot_be_loaded_keeps_the_server_from_starting(
    path: str, settings: dict[str, Any], reason: str, folder: Path, context: Context
) -> None:  # contract 7.3
    with pytest.raises(ProcessorLoadError, match=reason) as caught:
        ProcessorRegistry(context, [LogitsProcessorConfig("mine", path, **settings)])
    assert "mine" in str(caught.value)


@pytest.mark.parametrize(
    "configs", [[config("Ban"), config("Ban")], [LogitsProcessorConfig("a b", HERE + "Ban")]]
)
def test_names_are_names_and_differ(configs: list[LogitsProcessorConfig], context: Context) -> None:
    with pytest.raises(ProcessorLoadError, match=r"called 'ban'|'a b'"):
        ProcessorRegistry(context, configs)


async def test_a_server_with_a_bad_processor_does_not_start(start_engine: Any) -> None:
    with pytest.raises(ValueError, match=r"logits processor 'bad'.*no_such"):
        await start_engine(logits_processors=(LogitsProcessorConfig("bad", "no_such.Processor"),))


# Naming them.


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"specs": named(nothing={})}, "logits_processors[0].name"),
        ({"specs": [*named(ban={"ban": [1]}), *named(ban={"ban": [2]})]}, "logits_processors[1].name"),
        ({"specs": named(likes={}, only={})}, "logits_processors[1].params.token_id"),
        ({"specs": named(only={"token_id": 400})}, "logits_processors[0].params.token_id"),
        ({"specs": named(only={"token_id": 3, "more": 1})}, "logits_processors[0].params.more"),
        ({"specs": named(likes={"back": 3, "more": 1})}, "logits_processors[0].params.more"),
        ({"specs": named(ban={"ban": [1, -1]})}, "logits_processors[0].params.ban[1]"),
        ({"specs": [ForcedTokenSequenceSpec((5, 400), 1)]}, "logits_processors[0].params.token_ids[1]"),
        ({"specs": (), "vllm_xargs": {"nobody": 1}}, "vllm_xargs"),
        ({"specs": (), "vllm_xargs": ["ban"]}, "vllm_xargs"),
        ({"specs": (), "vllm_xargs": {"token_id": 400}}, "vllm_xargs.token_id"),
        ({"specs": (), "vllm_xargs": {"only": {"token_id": "x"}}}, "vllm_xargs.only.token_id"),
        ({"specs": (), "custom_params": {"how": "raise"}}, "custom_params"),  # three processors take that
        ({"specs": named(only={"token_id": 3}), "vllm_xargs": {"only": {"token_id": 3}}}, "vllm_xargs.only"),
    ],
)
def test_what_a_request_got_wrong_is_named(fields: dict[str, Any], param: str, context: Context) -> None:
    """Contract 7.3. `counts` takes whatever it is given, so it is left out."""
    registry = ProcessorRegistry(context, [c for c in ALL if c.name != "counts"])
    with pytest.raises(RequestError) as caught:
        registry.realize(request_of(*fields.pop("specs"), **fields))
    assert (caught.value.param, caught.value.status) == (param, 400)
    assert param in str(caught.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"specs": named(only={"token_id": 3}, likes={"back": 2})},
        {"vllm_xargs": {"likes": {"back": 2}, "only": {"token_id": 3}}},
        {"custom_params": {"only": {"token_id": 3}, "likes": {"back": 2}}},
        {"vllm_xargs": {"token_id": 3}, "custom_params": {"back": 2}},
    ],
)
def test_vllm_and_sglang_clients_name_them_their_way(asked: dict[str, Any], context: Context) -> None:
    registry = ProcessorRegistry(context, [c for c in ALL if c.name != "counts"])
    request = request_of(*asked.pop("specs", ()), **asked)
    _, wanted = registry.realize(request)
    assert [one.name for one in wanted] == ["only", "likes"]
    only, likes = (one.start(TokenIds([5, 6, 7], 3)).call for one in wanted)
    assert (only.token_id, likes.params.back) == (3, 2)  # type: ignore[union-attr]


def test_where_more_than_one_could_be_meant_none_is_guessed(registry: ProcessorRegistry) -> None:
    """`counts` takes any parameters, and `only` takes these."""
    with pytest.raises(RequestError, match="more than one logits processor takes this: only, counts"):
        registry.realize(request_of(custom_params={"token_id": 3}))
    assert names(registry, request_of(custom_params={"weight": 3})) == ["counts"]


@pytest.mark.parametrize("configs", [[], [config("Likes", mandatory=True)]])
@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"specs": named(likes={})}, "logits_processors"),
        ({"vllm_xargs": {"back": 1}}, "vllm_xargs"),
        ({"custom_params": {"likes": {}}}, "custom_params"),
    ],
)
def test_a_server_that_lets_requests_name_none_refuses_them(
    configs: list[LogitsProcessorConfig], asked: dict[str, Any], param: str, context: Context
) -> None:  # contract 7.3
    with pytest.raises(RequestError) as caught:
        ProcessorRegistry(context, configs).realize(request_of(*asked.get("specs", ()), **asked))
    assert caught.value.param == param


def test_nothing_asked_is_nothing_refused(context: Context) -> None:
    assert names(ProcessorRegistry(context), request_of(vllm_xargs={}, custom_params=None)) == []


def test_a_mandatory_processor_runs_for_every_request_and_none_can_alter_it(context: Context) -> None:
    configs = [config("Likes"), config("Only", mandatory=True, params={"token_id": 9}), config("Ban")]
    registry = ProcessorRegistry(context, configs)
    for request in (request_of(), request_of(*named(ban={"ban": [3]}, likes={}))):
        _, wanted = registry.realize(request)
        assert "only" in [one.name for one in wanted]
        (only,) = (one.start(TokenIds([5, 6, 7], 3)).call for one in wanted if one.name == "only")
        assert only.token_id == 9  # type: ignore[union-attr]
    for asked in (
        request_of(*named(only={"token_id": 3})),
        *(
            request_of(**{field: params})
            for field in ("vllm_xargs", "custom_params")
            for params in ({"token_id": 3}, {"only": {"token_id": 3}}, {"only": {}, "likes": {}})
        ),
    ):
        with pytest.raises(RequestError):
            registry.realize(asked)


MOODY = """
from pydantic import BaseModel, field_validator

def fail(): raise {error}('hush')

class Begins:
    def __init__(self): fail()
    def __call__(self, input_ids, logits): pass

class Validates(Begins):
    class Params(BaseModel):
        x: int
        @field_validator("x")
        @classmethod
        def _check(cls, x): fail()

class Expresses:
    @staticmethod
    def sampling(params, sampling): fail()
"""


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit", "BaseException"])
@pytest.mark.parametrize(("cls", "params"), [("Begins", {}), ("Validates", {"x": 1}), ("Expresses", {})])
def test_one_that_cannot_be_made_fails_the_request_and_not_the_engine(
    cls: str,
    params: dict[str, Any],
    error: str,
    folder: Path,
    context: Context,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # contract 7.6
    (folder / "moody.py").write_text(MOODY.format(error=error))
    monkeypatch.delitem(sys.modules, "moody", raising=False)
    registry = ProcessorRegistry(context, [LogitsProcessorConfig("moody", f"moody.{cls}")])
    with pytest.raises(LogitsProcessorError) as caught:
        request = request_of(*named(moody=params))
        for one in registry.realize(request)[1]:
            one.start(TokenIds([5, 6, 7], 3))
    assert caught.value.processor == "moody"
    assert "hush" not in str(caught.value)
    assert "hush" not in caplog.text
    assert re.search(rf"{error} at \S+/moody\.py:4$", caplog.text, re.MULTILINE)


# The neutral layer (contract 7.4).

SPECS = [
    NamedProcessorSpec("likes", {"back": 2, "by": 0.5}),
    ForcedTokenSequenceSpec((5, 6), 1),
    ForcedTokenSequenceSpec((5,), 1, generation_only=False),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_is_json_and_back(spec: LogitsProcessorSpec, tmp_path: Path) -> None:
    assert LogitsProcessorSpec.from_json(spec.to_json()) == spec
    recording = Recording(request_of(spec), ())
    recording.dump(tmp_path / "one.jsonl")
    assert Recording.load(tmp_path / "one.jsonl") == recording


def test_a_callable_is_no_json(tmp_path: Path) -> None:
    spec = PythonProcessorSpec(lambda: None)
    with pytest.raises(TypeError):
        spec.to_json()
    with pytest.raises(TypeError):
        Recording(request_of(spec), ()).dump(tmp_path / "one.jsonl")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"kind": "python", "factory": "os.system"}, "no kind of logits processor 'python'"),
        ({"kind": "hypnosis"}, "no kind of logits processor 'hypnosis'"),
        ({"name": "likes"}, "no kind"),
        ({"kind": "named"}, "not a valid named"),
        ({"kind": "named", "name": "likes", "code": "x"}, "not a valid named"),
        ({"kind": "forced_token_sequence", "token_ids": [1.5], "eos_token_id": 1}, "integers"),
        ({"kind": "forced_token_sequence", "token_ids": [1], "eos_token_id": -1}, "integers"),
    ],
)
def test_what_is_no_spec_is_refused(value: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        LogitsProcessorSpec.from_json(value)


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (Stage.AGGREGATED, ["mandatory", "likes", "forced_token_sequence", "forced_token_sequence"]),
        (Stage.DECODE, ["mandatory", "likes", "forced_token_sequence", "forced_token_sequence"]),
        (Stage.PREFILL, ["forced_token_sequence"]),
        (Stage.ENCODE, ["forced_token_sequence"]),
    ],
)
def test_a_stage_runs_what_is_meant_for_it(stage: Stage, expected: list[str], context: Context) -> None:
    mandatory = LogitsProcessorConfig("mandatory", HERE + "Likes", mandatory=True)
    registry = ProcessorRegistry(context, [mandatory, config("Likes")], stage=stage)
    assert names(registry, request_of(*SPECS)) == expected


def test_every_sequence_has_a_fresh_processor(
    tiny_core: Callable[..., Any],
) -> None:  # contract 7.4
    core = tiny_core(logits_processors=ALL)
    made: list[object] = []

    def factory() -> Likes:
        made.append(Likes(Likes.Params()))
        return made[-1]  # type: ignore[return-value]

    specs = (*named(likes={}, counts={}), PythonProcessorSpec(factory))
    group = core.processor.process(completion((5, 6), (7, 8), n=2, logits_processors=specs))
    states = [
        id(started.call or started.params) for seq in group.sequences for started in seq.sampling.processors
    ]
    assert len(set(states)) == len(states) == 4 * 3
    assert len(made) == 4


def test_a_python_processor_of_the_batch_form_fails_its_request(registry: ProcessorRegistry) -> None:
    class Batch:
        def __call__(self, logits: Any, params: Any) -> Any:
            return logits

    (one,) = registry.realize(request_of(PythonProcessorSpec(Batch)))[1]
    with pytest.raises(LogitsProcessorError):
        one.start(TokenIds([5, 6, 7], 3))


def test_a_spec_of_a_kind_unknown_here_is_refused(registry: ProcessorRegistry) -> None:
    @dataclasses.dataclass(frozen=True)
    class Later(LogitsProcessorSpec):
        kind = "later"

    with pytest.raises(RequestError, match="Later"):
        registry.realize(request_of(Later()))
