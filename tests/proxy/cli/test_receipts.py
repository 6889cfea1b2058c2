"""`weir receipts verify` says whether receipts are as a server wrote them, and `weir serve` writes them."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.cli import main
from proxy.settings.serve import ServeSettings
from proxy.storage.receipts.chain import Chain
from proxy.storage.receipts.keys import PUBLIC, KeyFault, signing_key, write_whole
from tests.serving import serving


@pytest.fixture
def file(tmp_path: Path) -> Path:
    key = signing_key(None, tmp_path)
    write_whole(tmp_path / PUBLIC, key.public_pem)
    chain = Chain(tmp_path, key.sign)
    chain.append([{"request_id": "a"}, {"request_id": "b"}])
    chain.sync()
    chain.close()
    return chain.path


def test_whole_receipts_are_counted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["receipts", "verify", str(file)])
    said = capsys.readouterr().out
    assert "2 receipts, each as it was written.\nThe last is number 2; its hash is " in said
    assert "Compare it with the log's." in said
    main(["receipts", "verify", str(file), "--key", str(file.with_name(PUBLIC))])
    assert "Compare" not in capsys.readouterr().out


def test_a_fault_is_the_reason_to_exit_with_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(file.read_bytes().replace(b'"b"', b'"c"'))
    with pytest.raises(SystemExit) as ended:
        main(["receipts", "verify", str(file)])
    assert ended.value.code == 1
    assert "line 2: the line has a signature that is not the key's" in capsys.readouterr().err


def test_a_missing_file_is_the_reason_to_exit_with_2(file: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["receipts", "verify", str(file.with_name("other.jsonl"))])
    assert ended.value.code == 2


def test_without_the_library_an_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(KeyFault, match=r"library cryptography: install the extra 'receipts'"):
        signing_key(None, tmp_path)


def test_a_key_without_receipts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="receipts_key: there are no receipts to sign"):
        ServeSettings(receipts_key=tmp_path / "key.pem")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_s_receipts_are_verified(
    tmp_path: Path, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--engine", "echo", "--receipts", str(tmp_path), "--workers", str(workers))
    with serving(*options) as url:
        body: Any = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
        for _ in range(4):
            asked = urllib.request.Request(
                f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(asked) as response:
                assert response.headers["X-Weir-Guards"].startswith("none; policy=default; revision=")
    files = sorted(tmp_path.glob("receipts-*.jsonl"))
    assert len(files) == workers
    assert sum(len(one.read_bytes().splitlines()) for one in files) == 4
    for one in files:
        main(["receipts", "verify", str(one)])
    assert capsys.readouterr().out.count("each as it was written") == workers
