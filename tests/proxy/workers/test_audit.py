"""`--audit` under several workers: one file, to which all processes write."""

import asyncio
import json
from pathlib import Path

from tests.helpers import until
from tests.proxy.worker_helpers import CHATS, Workers, asker, workers

NUM_REQUESTS = 40
"""Requests of one worker. Each gives two lines."""
FILE_SIZE = 24_000
"""Bytes: all lines together fill four files, and no more than the six that are kept."""
CONFIG = """
engine: echo
hooks:
  - {path: phrases, args: {phrases: [hunter2, blue bird]}}
"""


def files(folder: Path) -> list[Path]:
    return [folder / "audit.jsonl", *sorted(folder.glob("audit.jsonl.[0-9]*"))]


def num_lines(folder: Path) -> int:
    """Lines so far, while others are written and files are renamed."""
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("audit.jsonl*") if file.exists())


def ask_much(service: Workers, pid: int) -> list[str]:
    """Send requests to one process. Returns the users that they name."""
    users = [f"{pid}-{i}" for i in range(NUM_REQUESTS)]
    with asker(service, pid) as ask:
        for user in users:
            body = {"messages": [{"role": "user", "content": "hunter2 and blue bird"}], "user": user}
            assert ask("POST", CHATS, body)[0] == 200
    return users


async def test_each_decision_of_each_worker_is_one_whole_line_though_files_are_renamed(
    tmp_path: Path,
) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text(CONFIG)
    audit = ("--audit", str(tmp_path / "audit.jsonl"), "--audit-max-bytes", str(6 * FILE_SIZE))
    with workers(tmp_path, "--config", str(config), *audit, number=3) as service:
        pids = service.pids().values()
        assert len(set(pids)) == 3
        asked = await asyncio.gather(*(asyncio.to_thread(ask_much, service, pid) for pid in pids))
        users = [user for one in asked for user in one]
        await until(lambda: num_lines(tmp_path) == 2 * len(users))
        with asker(service, min(pids)) as ask:
            _, told = ask("GET", "/metrics")
    assert f"weir_audit_records_total {2 * len(users)}.0" in told.decode()
    assert "weir_audit_records_lost_total 0.0" in told.decode()
    found = files(tmp_path)
    assert len(found) >= 4
    assert all(file.stat().st_size <= FILE_SIZE for file in found)
    lines = [json.loads(line) for file in found for line in file.read_text().splitlines()]
    kept = [(line["user"], line["action"], line["num_withheld"]) for line in lines]
    assert sorted(kept) == sorted((user, "redact", length) for user in users for length in (7, 9))
