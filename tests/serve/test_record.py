"""`weir serve --record`, as a process of its own, and what it kept served again."""

import resource
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from engine.streams.recording import Recording
from tests.serving import serving, started, url_of
from tests.weir import run_weir

QUESTION = "What is your e-mail address?"


@contextmanager
def client(*options: str) -> Iterator[OpenAI]:
    with serving(*options) as url, OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as openai:
        yield openai


def stream(openai: OpenAI, question: str, **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": question}]
    model = openai.models.list().data[0].id
    return openai.chat.completions.create(model=model, messages=messages, temperature=0, stream=True, **more)


def text_of(chunks: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def said(path: Path) -> str:
    return "".join(timed.delta.text for timed in Recording.load(path).deltas)


def test_what_the_model_said_is_kept_unguarded_and_can_be_served_again(tmp_path: Path) -> None:
    hook = ("--hook", "examples/redact_email.py:RedactEmail")
    folder = tmp_path / "kept"
    with client("--record", str(folder), *hook) as openai:
        guarded = text_of(stream(openai, QUESTION, logprobs=True, top_logprobs=1))
    (path,) = folder.iterdir()
    assert "[e-mail]" in guarded
    assert "@" in said(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    tokens = [token for timed in Recording.load(path).deltas for token in timed.delta.tokens]
    assert all(token.id is not None and token.top for token in tokens)
    replay = ("--engine", "replay", "--recordings", str(folder), "--served-model-name", "m")
    with client(*replay, *hook) as openai:
        assert text_of(stream(openai, QUESTION)) == guarded
    with client(*replay) as openai:
        assert text_of(stream(openai, QUESTION)) == said(path)


def test_a_client_that_leaves_leaves_a_recording_of_what_was_said(tmp_path: Path) -> None:
    with client("--engine", "echo", "--record", str(tmp_path)) as openai:
        chunks = stream(openai, "one two three", max_tokens=20_000, extra_body={"ignore_eos": True})
        next(chunks)
        chunks.close()
        assert text_of(stream(openai, "one two three")) == "one two three"
    cut_short, whole = map(Recording.load, sorted(tmp_path.iterdir()))
    assert len(cut_short.deltas) < 20_000
    assert all(timed.delta.finish_reason is None for timed in cut_short.deltas)
    assert whole.deltas[-1].delta.finish_reason == "stop"


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_it_does_not_start_where_it_cannot_record(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    ended = run_weir("serve", "--port", "0", "--engine", "echo", "--record", tmp_path / folder)
    assert ended.returncode == 1
    assert f"weir serve: nothing can be recorded in {tmp_path / folder}: " in ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process's files, as Linux lets us")
def test_a_disk_that_takes_no_more_is_told_of_once_and_serving_goes_on(tmp_path: Path) -> None:
    with started("--engine", "echo", "--record", str(tmp_path)) as server:
        url = url_of(server)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (2000, 2000))
        with OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as openai:
            for _ in range(3):
                assert text_of(stream(openai, "word " * 100)) == "word " * 100
        server.terminate()
        log = server.communicate()[1]
    assert server.returncode == 0
    assert log.count("File too large") == 1
    for path in tmp_path.iterdir():
        assert path.stat().st_size <= 2000
        assert Recording.load(path).deltas
