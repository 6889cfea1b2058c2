"""Weir's guards as TensorRT-LLM's post-processor hook, in a stand-in for TensorRT-LLM."""

import json
import logging
import multiprocessing
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
from engine.protocol import GenerationRequest, SamplingParams
from tests.helpers import examples
from tests.library.adapters import trtllm_standin as standin
from tests.library.adapters.trtllm_standin import Request
from weir.adapters import trtllm

PHRASES = ["the weir", "zoe was", "heron"]
WORDS = ["the ", "weir", "the we", "ir", " heron", "her", "on", " zoe", " was", " ", ".", "", "é🎉", "w"]
KEPT = [{"path": "phrases", "args": {"phrases": PHRASES, "alternatives": "keep"}}]
ENDING = [{"path": "phrases", "args": {"phrases": PHRASES, "action": "terminate", "alternatives": "keep"}}]
STRICT = [{"path": "phrases", "args": {"phrases": PHRASES}}, "pii"]
Make = Callable[..., Any]

texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=16)


def configure(folder: Path, patch: pytest.MonkeyPatch, hooks: Any) -> Path:
    (path := folder / "weir.yaml").write_text(json.dumps({"engine": "local", "hooks": hooks}))
    patch.setenv("WEIR_CONFIG", str(path))
    return path


@pytest.fixture(autouse=True)
def tensorrt_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in standin.modules().items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(*hooks: Any) -> Any:
        configure(tmp_path, monkeypatch, hooks)
        return standin.load()

    return made


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, weir.Guards]]:
    """Made once for all examples, as a server makes them, each with the guards that it should be."""
    made: list[tuple[Any, weir.Guards]] = []
    configs: list[list[Any]] = [KEPT, ENDING, STRICT]
    with pytest.MonkeyPatch.context() as patch:
        for name, module in standin.modules().items():
            patch.setitem(sys.modules, name, module)
        for number, config in enumerate(configs):
            configure(tmp_path_factory.mktemp(str(number)), patch, config)
            specs = [weir.HookSpec(**one) if isinstance(one, dict) else one for one in config]
            made.append((standin.load(), weir.Guards(specs)))
    return made


def opened(guards: weir.Guards) -> weir.Answer:
    """As where a client asks for alternatives: fused guards may release more at a cut (contract 4.5)."""
    request = GenerationRequest(
        request_id="r", model="", endpoint="chat", sampling=SamplingParams(logprobs=1)
    )
    return guards.open(request, may_be_cut=True)


numbers = iter(range(1_000_000_000))


@given(texts, st.integers(0, 2))
@examples(1000)
def test_a_stream_releases_what_the_library_does(
    hooks: list[tuple[Any, weir.Guards]], drawn: list[str], which: int
) -> None:
    hook, guards = hooks[which]
    request = Request(hook, next(numbers))
    (got,) = request.stream([drawn])
    with opened(guards).stream(drawn) as stream:
        assert got.text == "".join(stream)
    assert got.stop_reason == stream.stop_reason
    assert_no_token_spells_more(request, got, "".join(drawn), strict=which == 2)
    assert not hook._requests or hook._requests.popitem()[1].is_ended


@given(texts, st.integers(0, 2))
@examples(500)
def test_a_whole_answer_is_what_the_library_releases(
    hooks: list[tuple[Any, weir.Guards]], drawn: list[str], which: int
) -> None:
    hook, guards = hooks[which]
    request = Request(hook, next(numbers), streaming=False)
    (got,) = request.whole([drawn])
    expected = opened(guards).text("".join(drawn))
    assert (got.text, got.stop_reason) == (expected.text, expected.stop_reason)
    assert got.token_ids == [] or expected.text == "".join(drawn)
    assert len(got.logprobs) == len(got.token_ids)


@given(st.lists(texts, min_size=2, max_size=3), st.booleans())
@examples(300)
def test_several_outputs_are_guarded_each(
    hooks: list[tuple[Any, weir.Guards]], drawn: list[list[str]], streaming: bool
) -> None:
    hook, guards = hooks[0]
    request = Request(hook, next(numbers), streaming=streaming)
    for got, own in zip(request.stream(drawn) if streaming else request.whole(drawn), drawn, strict=True):
        assert got.text == "".join(opened(guards).stream(own))
        assert_no_token_spells_more(request, got, "".join(own), strict=False)
    assert not hook._requests


def assert_no_token_spells_more(request: Request, got: standin.Given, text: str, *, strict: bool) -> None:
    """No id that left is of a token with a character of a phrase. `strict`: no id left with text."""
    assert len(got.logprobs) == len(got.token_ids)
    if strict:
        assert got.token_ids == []
    forbidden = re.compile(rf"\b({'|'.join(PHRASES)})\b")
    place = 0
    own = [i for output in request.outputs if text == _said(request, output) for i in output.token_ids]
    for number in own:
        end = place + len(request.vocabulary[number])
        if number in got.token_ids and request.streaming:
            assert not any(m.start() < end and m.end() > place for m in forbidden.finditer(text))
        place = end


def _said(request: Request, output: standin.Output) -> str:
    return "".join(request.vocabulary[i] for i in output.token_ids)


def test_text_arrives_as_the_model_writes_it(make: Make) -> None:
    request = Request(make(*KEPT), 1)
    request._begin(1)
    had = []
    for text in ("Who", " built", " the", " weir", "?"):
        request.respond(0, [text], text == "?", "length")
        had.append(request.given[0].text)
    assert had == ["Who", "Who built", "Who built", "Who built", "Who built [phrase]?"]
    assert request.given[0].token_ids == [0, 1, 4]
    assert request.given[0].finish_reason == "length"


def test_text_without_ids_leaves_at_the_end_where_a_guard_withholds_alternatives(make: Make) -> None:
    request = Request(make(*STRICT), 1)
    (got,) = request.stream([["Who", " built", " it", "?"]], finish_reason="length")
    assert (got.text, got.token_ids, got.finish_reason) == ("Who built it?", [], "stop")


def test_a_hook_that_ends_one_output_ends_the_others(make: Make) -> None:
    request = Request(make(*ENDING), 1)
    first, second = request.stream([["A", " heron", " flies"], ["By", " the", " river"]])
    assert (first.text, first.stop_reason) == ("A ", "phrase")
    assert second.text == "By"
    request.is_done = False
    request.respond(1, [" heron"], True, "stop")  # a response that was on its way
    assert request.given[1].text == "By"


class Raises:
    def __call__(self, chunk: weir.Chunk) -> weir.Verdict:
        if "boom" in chunk.text:
            raise RuntimeError(f"cannot read {chunk.text}")
        return weir.emit(chunk.pending)


def test_a_hook_that_raises_fails_its_request_and_no_other(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make(f"{__name__}:Raises")
    request = Request(hook, 1)
    with pytest.raises(weir.HookError) as raised:
        request.stream([["It goes", " boom", " now"]])
    assert (request.given[0].text, raised.value.__cause__, raised.value.__context__) == (
        "It goes",
        None,
        None,
    )
    with pytest.raises(weir.HookError):
        request.respond(0, [" later"], True, "stop")
    assert request.given[0].text == "It goes"
    assert Request(hook, 2).stream([["It goes", " on"]])[0].text == "It goes on"
    logging.getLogger().exception("as TensorRT-LLM logs it", exc_info=raised.value)
    assert "cannot read" not in caplog.text


def test_text_that_does_not_follow_is_refused(make: Make) -> None:
    """As where a tokenizer decodes a stream anew: the beginning comes again in the clear."""
    request = Request(make(*KEPT), 1)
    request._begin(1)
    request.respond(0, ["a heron "], False, "stop")
    request.respond(0, ["flies. "], False, "stop")
    assert request.given[0].text == "a [phrase] flies. "
    request.outputs[0].text = "a heron flies. "
    with pytest.raises(trtllm.OutOfOrderError):
        request.respond(0, ["It flies."], True, "stop")
    assert request.given[0].text == "a [phrase] flies. "


def test_a_silent_request_is_forgotten_and_its_text_refused(make: Make) -> None:
    hook = make(*KEPT)
    left = Request(hook, 1)
    left._begin(1)
    left.respond(0, ["a her"], False, "stop")
    hook._requests[1].called -= trtllm.MAX_SILENCE + 1
    Request(hook, 2).stream([["one"]])
    assert not hook._requests[1].outputs
    with pytest.raises(trtllm.OutOfOrderError):
        left.respond(0, ["on"], True, "stop")


def test_it_runs_in_processes_for_post_processing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = configure(tmp_path, monkeypatch, KEPT)
    assert isinstance(pickle.loads(pickle.dumps(standin.load())), trtllm.Hook)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        worker = pool.submit(standin.in_a_worker, str(path), [["a her", "on."], ["the", " weir"]])
        assert worker.result(60) == ["a [phrase].", "[phrase]"]


class ReadsPrompts(Raises):
    def on_request(self, request: Any) -> Any:
        return request


class Awaits:
    async def __call__(self, chunk: weir.Chunk) -> weir.Verdict:
        return weir.emit(chunk.pending)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        (["ReadsPrompts"], "ReadsPrompts reads prompts"),
        (["Awaits"], "Awaits awaits something"),
        ([], "at least one hook"),
        (["Missing"], "Missing"),
    ],
)
def test_a_hook_that_cannot_run_there_is_refused(make: Make, named: Sequence[str], reason: str) -> None:
    with pytest.raises((weir.HookLoadError, ValueError), match=reason):
        make(*(f"{__name__}:{name}" for name in named))


def test_a_wrong_configuration_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="hooks"):
        make({"path": "phrases", "no_such": 3})
