"""Processors are found by name or path. A bad one keeps the server from starting (contract 7.3)."""

import sys
from pathlib import Path
from typing import Any

import pytest

from engine.protocol import RequestError
from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors import Context, NamedProcessorSpec
from engine.sampling.logits_processors.load import ProcessorLoadError
from engine.sampling.logits_processors.registry import ProcessorRegistry
from tests.engine.sampling.logits_processors.processors import HERE, config, named, names, request_of


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
    with pytest.raises(RequestError, match="unknown logits processor 'other'"):
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
        ("acme_processors.Good", {"params": {"a": 1}, "mandatory": True}, "params.a: unknown parameter"),
        ("bad_words", {"params": {"bad_words": []}, "mandatory": True}, "params.bad_words"),
        (HERE + "Only", {"params": {"token_id": 400}, "mandatory": True}, "below 400"),
    ],
)
def test_a_processor_that_cannot_be_loaded_keeps_the_server_from_starting(
    path: str, settings: dict[str, Any], reason: str, folder: Path, context: Context
) -> None:  # contract 7.3
    with pytest.raises(ProcessorLoadError, match=reason) as caught:
        ProcessorRegistry(context, [LogitsProcessorConfig("mine", path, **settings)])
    assert "mine" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "params", "reason"),
    [
        ("only", {"token_id": 400}, "'only': params.token_id: .*below 400"),
        ("only", {}, "params.token_id: Field required"),
        ("bad_words", {"bad_words": [" "]}, "must not be blank"),
        ("nothing", {}, "unknown logits processor 'nothing'"),
    ],
)
def test_parameters_are_tried_without_a_request(
    name: str, params: dict[str, Any], reason: str, context: Context
) -> None:
    registry = ProcessorRegistry(context, [config("Only"), LogitsProcessorConfig("bad_words", "bad_words")])
    registry.check(named(only={"token_id": 399}, bad_words={"bad_words": ["fox"]}))
    with pytest.raises(ProcessorLoadError, match=reason):
        registry.check(named(**{name: params}))


@pytest.mark.parametrize(
    "configs", [[config("Ban"), config("Ban")], [LogitsProcessorConfig("a b", HERE + "Ban")]]
)
def test_names_must_be_valid_and_unique(configs: list[LogitsProcessorConfig], context: Context) -> None:
    with pytest.raises(ProcessorLoadError, match=r"called 'ban'|'a b'"):
        ProcessorRegistry(context, configs)


async def test_a_server_with_a_bad_processor_does_not_start(start_engine: Any) -> None:
    with pytest.raises(ValueError, match=r"logits processor 'bad'.*no_such"):
        await start_engine(logits_processors=(LogitsProcessorConfig("bad", "no_such.Processor"),))
