"""The files of recordings: what they hold, and which files are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import (
    Delta,
    GenerationRequest,
    ProbeInfo,
    PromptScores,
    SamplingParams,
    Token,
    ToolCall,
    TopLogprob,
    Usage,
)
from engine.protocol.probe_info import Calibration
from engine.streams.recording import Failure, Recording, TimedDelta


def chat(content: Any = "Hi", **fields: Any) -> GenerationRequest:
    asked = {
        "request_id": "r",
        "model": "m",
        "endpoint": "chat",
        "messages": ({"role": "user", "content": content},),
    }
    return GenerationRequest(**asked | fields)


PROBE = ProbeInfo(
    name="harm",
    kind="attention",
    labels=("harm",),
    calibration=Calibration(threshold=1.5, span=8, interval=(0.0, 0.01)),
)
RECORDING = Recording(
    chat(
        sampling=SamplingParams(n=2, stop=("a", "b"), logit_bias={7: -1.5}, seed=3, logprobs=1),
        extra={"x": [1]},
    ),
    (
        TimedDelta(0.1, Delta(text="é", tokens=(Token(id=1, text="é", raw="é".encode(), logprob=-0.1),))),
        TimedDelta(0.2, Delta(index=1, channel="tool_call", tool_call=ToolCall(0, "f", "call"), text="{}")),
        TimedDelta(
            0.25,
            Delta(
                tokens=(Token(id=None, text="", raw=b"\xff", top=(TopLogprob(2, b"\xff", -1.0),)),),
                prompt_token_ids=(1, 2),
                prompt_scores=PromptScores((PROBE,), ((0.5,), (-1e-9,))),
            ),
        ),
        TimedDelta(1 / 3, Delta(finish_reason="stop", stop_reason="a", usage=Usage(3, 2))),
    ),
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
number = st.floats(allow_nan=False, allow_infinity=False)
tops = st.builds(TopLogprob, id=st.none() | st.integers(0, 9), raw=st.binary(max_size=4), logprob=number)
some_tokens = st.builds(
    Token,
    id=st.none() | st.integers(0, 9),
    text=text,
    raw=st.binary(max_size=4),
    logprob=st.none() | number,
    top=st.lists(tops, max_size=2).map(tuple),
    position=st.none() | st.integers(0, 9),
    rank=st.none() | st.integers(1, 9),
    scores=st.none() | st.tuples(number, number),
)
deltas = st.builds(
    Delta,
    index=st.integers(0, 3),
    text=text,
    tokens=st.lists(some_tokens, max_size=3).map(tuple),
    channel=st.sampled_from(["content", "reasoning", "echo"]),
    stop_reason=st.none() | text | st.integers(0, 9),
    prompt_token_ids=st.none() | st.lists(st.integers(0, 9)).map(tuple),
    prompt_scores=st.none()
    | st.builds(PromptScores, st.just((PROBE,)), st.lists(st.tuples(number), max_size=3).map(tuple)),
)


def request_line(endpoint: str, **fields: object) -> str:
    request = {"request_id": "r", "model": "m", "endpoint": endpoint, **fields}
    return json.dumps({"version": 1, "request": request})


def test_a_file_holds_all(tmp_path: Path) -> None:
    RECORDING.dump(tmp_path / "a.jsonl")
    assert Recording.load(tmp_path / "a.jsonl") == RECORDING


@given(st.lists(deltas, max_size=3))
def test_any_delta_is_held(tmp_path_factory: pytest.TempPathFactory, some: list[Delta]) -> None:
    recording = Recording(
        chat(sampling=SamplingParams(n=4)),
        tuple(TimedDelta(i / 7, delta) for i, delta in enumerate(some)),
        Failure(9.0, "x", 503),
    )
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    recording.dump(path)
    assert Recording.load(path) == recording


def test_lines_leave_defaults_out() -> None:
    recording = Recording(
        chat(), (TimedDelta(0.5, Delta(text="é", tokens=(Token(id=1, text="é", raw="é".encode()),))),)
    )
    assert [line.decode() for line in recording.lines()] == [
        '{"version":1,"request":{"request_id":"r","model":"m","endpoint":"chat","messages":[{"role":"user","content":"Hi"}]}}',
        '{"t":0.5,"text":"é","tokens":[{"id":1,"text":"é"}]}',
    ]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "line 1: no request"),
        (["{}"], "line 1: not a recording of version 1"),
        (['{"version": 2, "request": {}}'], "line 1: not a recording of version 1"),
        (['{"version": 1, "request": {"model": "m"}}'], "line 1: request_id: Field required$"),
        (["[]"], "line 1: "),
        (["GOOD", "{"], "line 2: "),
        ([request_line("chat")], "line 1: a request to chat without messages"),
        ([request_line("responses", prompts=["Hi"])], "line 1: a request to responses without messages"),
        ([request_line("completions", prompts=[])], "line 1: a request to completions without prompts"),
        (["GOOD", '{"t": 0, "index": 9}'], "line 2: the request has no output 9"),
        (["GOOD", '{"t": 0, "index": -1}'], "line 2: the request has no output -1"),
        (
            ["GOOD", '{"t": 0, "rewind": {"index": 9, "num_tokens": 0}}'],
            "line 2: the request has no output 9",
        ),
        (
            ["GOOD", '{"t": 0, "error": {"message": "x", "status": 200}}'],
            "line 2: status 200 is not from 400 to 599",
        ),
        (["GOOD", "", '{"text": "x"}'], "line 3: no field 't'"),
        (["GOOD", '{"t": 1, "text": 5}'], "line 2: text: Input should be a valid string$"),
        (["GOOD", '{"t": 1, "tokens": [{"id": 1, "text": "x", "raw": "%"}]}'], "line 2: "),
        (["GOOD", '{"t": 1}', '{"t": 0}'], "line 3: t decreases"),
        (["GOOD", '{"t": 1, "error": {"message": "x"}}', '{"t": 2}'], "line 3: nothing may follow an error"),
    ],
)
def test_names_the_line_that_is_wrong(tmp_path: Path, lines: list[str], reason: str) -> None:
    good = next(Recording(chat(), ()).lines()).decode()
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines).replace("GOOD", good))
    with pytest.raises(ValueError, match=f"bad.jsonl, {reason}"):
        Recording.load(path)
