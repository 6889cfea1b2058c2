"""`--audit`: each decision is a line of a file, and no request waits for it."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from hooks import Chunk, Verdict, emit, redact
from hooks.builtin.audit_log import journal
from hooks.builtin.audit_log.sinks import LineFile
from proxy.settings.serve import ServeSettings
from proxy.storage.records import ACTIONS, MODES, DecisionRecord
from proxy.telemetry.ocsf import SCHEMA_VERSION, detection_finding
from tests.helpers import ScriptedEngine, make_deltas, until
from tests.proxy.conftest import Client, Serve

CHATS = "/v1/chat/completions"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "user": "ann"}


@pytest.fixture(scope="module")
def finding_schema() -> jsonschema.Draft202012Validator:
    schemas = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=SCHEMA_VERSION))
    return jsonschema.Draft202012Validator(
        schemas.get_class_schema(class_name="detection_finding", profiles=["security_control"])
    )


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for the last record, however slow this machine is."""
    monkeypatch.setattr(journal, "CLOSING", 600.0)


def redacts(chunk: Chunk) -> Verdict:
    return redact([(0, 5, "[animal]", "animal")]) if chunk.pending == "zebra" else emit(chunk.pending)


async def serve_zebras(serve: Serve, file: Path, **settings: Any) -> Client:
    return await serve(
        ScriptedEngine(lambda _: make_deltas(["a ", "zebra"])), redacts, audit=file, **settings
    )


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("keeps_text", [False, True])
@pytest.mark.parametrize("form", ["json", "ocsf"])
async def test_a_decision_is_a_line_with_its_text_only_if_that_is_kept(
    serve: Serve, tmp_path: Path, form: str, keeps_text: bool, finding_schema: jsonschema.Draft202012Validator
) -> None:
    file = tmp_path / "audit.jsonl"
    client = await serve_zebras(serve, file, audit_format=form, keep_withheld_text=keeps_text)
    _, body, _ = await client.post(CHATS, CHAT)
    await client.server.service.audit.aclose()
    (line,) = lines_of(file)
    assert ("zebra" in file.read_text()) is keeps_text
    if form == "ocsf":
        finding_schema.validate(line)
        assert line["policy"]["version"] == line["unmapped"]["weir"]["revision"]
        line = line["unmapped"]["weir"]
    told = ("request_id", "user", "policy", "hook", "action", "reason", "num_withheld")
    assert [line[name] for name in told] == [body["id"], "ann", "default", "hook0", "redact", "animal", 5]
    assert line.get("withheld") == ("zebra" if keeps_text else None)
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_is_a_finding_of_the_published_schema(
    action: Any, mode: Any, finding_schema: jsonschema.Draft202012Validator
) -> None:
    values: dict[str, Any] = dict.fromkeys(DecisionRecord._fields)
    values |= {"time": 1000.5, "request_id": "r", "tenant": "t", "key": "k", "policy": "p", "model": "m"}
    finding = detection_finding(DecisionRecord(**values | {"hook": "pii", "action": action, "mode": mode}))
    finding_schema.validate(finding)
    assert finding["policy"]["is_applied"] is (mode == "enforce")
    assert mode == "enforce" or finding["action"] == "Observed"
    for name in ("severity_id", "metadata", "finding_info"):
        with pytest.raises(jsonschema.ValidationError):
            finding_schema.validate({key: value for key, value in finding.items() if key != name})


async def test_a_full_disk_ends_no_stream_and_the_loss_is_counted_and_said_once(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, append, is_full = tmp_path / "audit.jsonl", LineFile._append, True

    def may_append(*arguments: Any) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(*arguments)

    monkeypatch.setattr(LineFile, "_append", may_append)
    monkeypatch.setattr(journal, "LIMIT", 3)
    monkeypatch.setattr(journal, "RETRY", 0.01)
    client = await serve_zebras(serve, file)
    for _ in range(5):
        events = await client.stream(CHATS, CHAT)
        assert events.content() == "a [animal]"

    async def counted(name: str) -> str:
        _, body = await client.get("/metrics")
        (value,) = (line.split()[1] for line in body.decode().splitlines() if line.startswith(f"{name} "))
        return value

    assert await counted("weir_audit_records_lost_total") == "2.0"
    assert await counted("weir_audit_records_waiting") == "3.0"
    assert [one.message.count("are lost from now on") for one in caplog.records].count(1) == 1
    assert "zebra" not in caplog.text
    is_full = False
    await until(lambda: len(lines_of(file)) == 3)
    await client.server.service.audit.aclose()
    assert await counted("weir_audit_records_total") == "3.0"


async def test_full_files_are_renamed_and_few_are_kept(serve: Serve, tmp_path: Path) -> None:
    client = await serve_zebras(serve, tmp_path / "a", audit_max_bytes=60)
    for _ in range(8):
        await client.post(CHATS, CHAT)
    await client.server.service.audit.aclose()
    assert set(os.listdir(tmp_path)) == {"a", *(f"a.{i}" for i in range(1, 6)), "a.lock"}
    assert len(lines_of(tmp_path / "a")) == len(lines_of(tmp_path / "a.5")) == 1


async def test_a_file_that_cannot_be_written_keeps_the_server_from_starting(
    serve: Serve, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"audit: .* cannot be written: No such file"):
        await serve_zebras(serve, tmp_path / "none" / "audit.jsonl")


def test_options_of_the_file_need_the_file() -> None:
    with pytest.raises(ValueError, match="need --audit FILE"):
        ServeSettings.model_validate({"audit_format": "ocsf"})
