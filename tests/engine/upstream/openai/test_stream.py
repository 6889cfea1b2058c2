"""Translating an upstream's chunks to deltas."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import (
    Delta,
    EngineError,
    GenerationRequest,
    SamplingParams,
    Token,
    ToolCall,
    TopLogprob,
    Usage,
)
from engine.upstream.openai.stream import StreamTranslator
from tests.engine.upstream.openai.asked import chat, completion


def translate(request: GenerationRequest, *chunks: dict[str, Any], complete: bool = True) -> list[Delta]:
    translator = StreamTranslator(request)
    deltas = [delta for chunk in chunks for delta in translator.feed(chunk)]
    return deltas + translator.finish(complete=complete)


def chunk(index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def piece(text: str, *tokens: str, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": finish, **fields}
    if tokens:
        choice["logprobs"] = {"tokens": list(tokens), "token_logprobs": [-1.0] * len(tokens)}
    return {"choices": [choice]}


def texts(deltas: list[Delta]) -> dict[str, str]:
    joined: dict[str, str] = defaultdict(str)
    for delta in deltas:
        joined[delta.channel] += delta.text
    return dict(joined)


def told(deltas: list[Delta], channel: str = "content") -> list[tuple[str, str]]:
    return [(token.raw.decode(), token.text) for d in deltas if d.channel == channel for token in d.tokens]


def pieces(text: str, cuts: set[int]) -> list[str]:
    edges = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges) if start < end]


class TestOutputs:
    @pytest.mark.parametrize(
        ("n", "indexes"), [(2, [-1]), (2, [2]), (2, [0, -2]), (1, [0, 1]), (1, [None, 7]), (1, [3, 4])]
    )
    def test_one_that_was_not_asked_for_makes_no_sense(self, n: int, indexes: list[int | None]) -> None:
        translator = StreamTranslator(chat(sampling=SamplingParams(n=n)))
        with pytest.raises(IndexError):
            translator.feed({"choices": [{"index": index, "delta": {"content": "a"}} for index in indexes]})

    def test_of_a_single_one_the_index_may_be_a_counter(self) -> None:
        deltas = translate(chat(), chunk(3, content="a"), chunk(4, content="b"), chunk(5, finish="stop"))
        assert texts(deltas) == {"content": "ab"}
        assert {d.index for d in deltas} == {0}


class TestChannels:
    def test_reasoning_has_two_names(self) -> None:
        for name in ("reasoning_content", "reasoning"):
            thought: dict[str, Any] = {name: "hm"}
            deltas = translate(
                chat(), chunk(role="assistant", content=""), chunk(**thought), chunk(content="a")
            )
            assert texts(deltas) == {"reasoning": "hm", "content": "a"}

    def test_tool_calls_are_remembered(self) -> None:
        first = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}
        more = {"index": 0, "function": {"arguments": "{}"}}
        second = {"index": 1, "id": "c2", "function": {"name": "g", "arguments": "[]"}}
        deltas = translate(
            chat(), chunk(tool_calls=[first]), chunk(tool_calls=[more, second]), chunk(finish="tool_calls")
        )
        f, g = ToolCall(0, "f", "c1"), ToolCall(1, "g", "c2")
        assert [(d.tool_call, d.text) for d in deltas] == [(f, "{}"), (g, "[]"), (None, "")]
        assert deltas[-1].finish_reason == "tool_calls"

    @pytest.mark.parametrize("indices", [(None, None, None), (0, 0, 0), (3, 3, 9)])
    def test_a_tool_calls_index_may_be_wrong_or_lack(self, indices: tuple[int | None, ...]) -> None:
        calls = [
            {"index": indices[0], "id": "c1", "function": {"name": "f", "arguments": "1"}},
            {"index": indices[1], "function": {"name": None, "arguments": "2"}},
            {"index": indices[2], "id": "c2", "function": {"name": "g", "arguments": {"a": 3}}},
        ]
        deltas = translate(chat(), *(chunk(tool_calls=[call]) for call in calls))
        assert [(d.tool_call.index, d.tool_call.name, d.text) for d in deltas if d.tool_call] == [
            (0, "f", "1"),
            (0, "f", "2"),
            (1, "g", '{"a":3}'),
        ]
        assert deltas[-1].finish_reason == "tool_calls"

    @given(st.sets(st.integers(1, 10)), st.sets(st.integers(1, 6)), st.booleans())
    def test_a_tool_calls_name_may_come_in_pieces(
        self, name_cuts: set[int], cuts: set[int], with_index: bool
    ) -> None:
        name, arguments = "get_weather", '{"a":1}'
        index = {"index": 0} if with_index else {}
        functions = [{"name": piece} for piece in pieces(name, name_cuts if with_index else set())]
        functions += [{"arguments": piece} for piece in pieces(arguments, cuts)]
        calls = [{**index, "function": {"arguments": "", **function}} for function in functions]
        calls[0]["id"] = "c1"
        deltas = translate(chat(), *(chunk(tool_calls=[call]) for call in calls), chunk(finish="stop"))
        assert {d.tool_call for d in deltas[:-1]} == {ToolCall(0, name, "c1")}
        assert texts(deltas)["tool_call"] == arguments

    def test_a_call_without_arguments_is_told_before_the_next_and_at_the_end(self) -> None:
        calls = [{"index": i, "id": f"c{i}", "function": {"name": f"f{i}", "arguments": ""}} for i in (0, 1)]
        chunks = [chunk(tool_calls=[calls[0]]), chunk(tool_calls=[calls[1]]), chunk(finish="tool_calls")]
        deltas = translate(chat(), *chunks)
        assert [d.tool_call and (d.tool_call.name, d.text) for d in deltas] == [
            ("f0", ""),
            ("f0", "{}"),
            ("f1", "{}"),
        ]
        assert deltas[-1].finish_reason == "tool_calls"

    @pytest.mark.parametrize("finish", [None, "tool_calls"])
    def test_a_call_whose_stream_just_ends_is_told(self, finish: str | None) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": None}}
        deltas = translate(chat(), chunk(content="a"), chunk(tool_calls=[call], finish=finish))
        assert [(d.tool_call and d.tool_call.name, d.text) for d in deltas] == [(None, "a"), ("f", "{}")]
        assert deltas[-1].finish_reason == "tool_calls"

    def test_a_call_without_a_name_is_told_nothing_of(self) -> None:
        call = {"index": 0, "id": "c", "function": {"arguments": "{}"}}
        deltas = translate(chat(), chunk(tool_calls=[call]), chunk(finish="tool_calls"))
        assert [(d.tool_call, d.text) for d in deltas] == [(None, "")]

    def test_tokens_of_a_tool_call_that_is_not_told_yet_are_not_told(self) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
        chunks = [chunk(content="a"), chunk(tool_calls=[call]), chunk(content="b"), chunk(finish="stop")]
        for step, tokens in zip(chunks, (["a"], ["<tool>", "f"], ["b"], ["</s>"]), strict=True):
            entries = [{"token": token, "logprob": -1.0} for token in tokens]
            step["choices"][0]["logprobs"] = {"content": entries}
        deltas = translate(chat(sampling=SamplingParams(logprobs=0)), *chunks)
        assert (told(deltas), texts(deltas)["content"]) == ([("a", "a"), ("b", "b")], "ab")
        assert [d.tool_call.name for d in deltas if d.tool_call] == ["f"]

    def test_tokens_of_a_tool_call_are_not_told(self) -> None:
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
        chunks = [chunk(content="a"), chunk(), chunk(tool_calls=[call]), chunk(finish="tool_calls")]
        for step, tokens in zip(chunks, (["a"], ["<tool>", "{"], ["}"], ["</s>"]), strict=True):
            entries = [{"token": token, "logprob": -1.0} for token in tokens]
            step["choices"][0]["logprobs"] = {"content": entries}
        deltas = translate(chat(sampling=SamplingParams(logprobs=0)), *chunks)
        assert [token.text for d in deltas for token in d.tokens] == ["a"]

    def test_tokens_follow_the_text_across_channels(self) -> None:
        both = chunk(reasoning="b", content="c")
        both["choices"][0]["logprobs"] = {
            "content": [{"token": t, "logprob": -1.0} for t in ("b", "</think>", "c")]
        }
        deltas = translate(chat(sampling=SamplingParams(logprobs=0)), both)
        assert told(deltas, "reasoning") == [("b", "b")]
        assert told(deltas) == [("</think>", ""), ("c", "c")]

    def test_tokens_are_told_again_after_a_text_without_tokens(self) -> None:
        """Weir itself sends a replacement without tokens."""
        chunks = [piece("Hi", "Hi"), piece(" [MAIL]"), piece(" and", " a", "nd"), piece("", finish="stop")]
        deltas = translate(completion("", sampling=SamplingParams(logprobs=0)), *chunks)
        assert texts(deltas) == {"content": "Hi [MAIL] and"}
        assert told(deltas) == [("Hi", "Hi"), (" a", " a"), ("nd", "nd")]

    def test_echoed_tokens_are_not_told_after_a_text_without_tokens(self) -> None:
        """It is not known how many of the prompt's tokens the text was."""
        chunks = [piece("x"), piece("a", "a"), piece("b", "b"), piece("", finish="stop")]
        deltas = translate(completion((1, 5), echo=True, sampling=SamplingParams(logprobs=0)), *chunks)
        assert (texts(deltas), [token for d in deltas for token in d.tokens]) == ({"content": "xab"}, [])


class TestEcho:
    @given(st.sets(st.integers(0, 20)), st.booleans())
    def test_an_echoed_text_is_told_by_its_text(self, cuts: set[int], with_tokens: bool) -> None:
        words = ["The", " cat", " sat", " on", " the", " mat", "."]
        sent: list[list[str]] = [[]]
        for i, word in enumerate(words):
            sent[-1].append(word)
            if i in cuts:
                sent.append([])
        chunks = [piece("".join(group), *(group if with_tokens else ())) for group in sent]
        deltas = translate(completion("The cat", echo=True, sampling=SamplingParams(logprobs=0)), *chunks)
        assert texts(deltas) == {"echo": "The cat", "content": " sat on the mat."}
        if with_tokens:
            assert [own for own, _ in told(deltas, "echo")] == words[:2]
            assert [own for own, _ in told(deltas)] == words[2:]

    def test_an_upstream_that_echoes_nothing_has_only_content(self) -> None:
        deltas = translate(
            completion("The cat", echo=True), piece("The"), piece("re is"), piece("", finish="stop")
        )
        assert texts(deltas) == {"content": "There is"}
        deltas = translate(completion("The cat", echo=True), piece("The", finish="stop"))
        assert texts(deltas) == {"content": "The"}

    @given(st.sets(st.integers(0, 6)))
    def test_echoed_ids_are_told_by_their_number(self, cuts: set[int]) -> None:
        words = ["<s>", "The", " cat", " sat", " on", "</s>"]
        sent: list[list[str]] = [[]]
        for i, word in enumerate(words):
            sent[-1].append(word)
            if i in cuts:
                sent.append([])
        chunks = [piece("".join(w for w in group if "<" not in w), *group) for group in sent]
        deltas = translate(completion((1, 5, 6), echo=True), *chunks)
        assert texts(deltas) == {"echo": "The cat", "content": " sat on"}
        echo = [token for d in deltas if d.channel == "echo" for token in d.tokens]
        assert [(token.id, token.text) for token in echo] == [(1, ""), (5, "The"), (6, " cat")]
        assert told(deltas) == [(" sat", " sat"), (" on", " on"), ("</s>", "")]
        assert all(token.logprob is None for d in deltas for token in d.tokens)

    def test_with_token_ids_it_is_the_callers_own_text(self) -> None:
        request = completion("Once a", echo=True, return_token_ids=True)
        first = piece(" b", " b", token_ids=[7], prompt_token_ids=[1, 2])
        deltas = translate(request, first, piece("Once a", "Once a", finish="stop", token_ids=[8]))
        assert texts(deltas) == {"echo": "Once a", "content": " bOnce a"}
        assert [d.prompt_token_ids for d in deltas] == [(1, 2), None, None]
        assert [t.id for d in deltas for t in d.tokens] == [7, 8]

    def test_the_prompt_alone(self) -> None:
        request = completion((1, 5), echo=True, sampling=SamplingParams(max_tokens=0, logprobs=1))
        first = piece("<s>The", "<s>", "The", finish="length")
        first["choices"][0]["logprobs"] |= {
            "token_logprobs": [None, -1.0],
            "top_logprobs": [None, {"The": -1.0}],
        }
        deltas = translate(request, first)
        assert texts(deltas) == {"echo": "<s>The"}
        assert [token.logprob for d in deltas for token in d.tokens] == [None, -1.0]
        assert deltas[-1].finish_reason == "length"


class TestTokens:
    def test_chat_logprobs(self) -> None:
        first, last = chunk(content="é"), chunk(content="!", finish="stop")
        top = [{"token": "a", "logprob": -3.0, "bytes": [97]}, {"token": "b", "logprob": -1.0, "bytes": None}]
        parts = [{"token": "\\xc3", "logprob": -0.5, "bytes": [0xC3], "top_logprobs": top}]
        parts += [{"token": "\\xa9", "logprob": float("-inf"), "bytes": [0xA9], "top_logprobs": []}]
        first["choices"][0]["logprobs"] = {"content": parts}
        last["choices"][0]["logprobs"] = {"content": [{"token": "!", "logprob": -20000, "bytes": None}]}
        deltas = translate(chat(sampling=SamplingParams(logprobs=2)), first, last)
        tops = (TopLogprob(None, b"b", -1.0), TopLogprob(None, b"a", -3.0))
        assert [token for d in deltas for token in d.tokens] == [
            Token(id=None, text="", raw=b"\xc3", logprob=-0.5, top=tops),
            Token(id=None, text="é", raw=b"\xa9", logprob=-9999.0),
            Token(id=None, text="!", raw=b"!", logprob=-9999.0),
        ]

    def test_ids_go_with_their_tokens(self) -> None:
        request = completion("a", return_token_ids=True)
        first = piece("ab", "a", "b", token_ids=[7, 8], prompt_token_ids=[1, 2])
        deltas = translate(
            request, first, piece("c", "c", finish="stop", token_ids=[9], prompt_token_ids=[1, 2])
        )
        assert [(t.id, t.text, t.logprob) for d in deltas for t in d.tokens] == [
            (7, "a", None),
            (8, "b", None),
            (9, "c", None),
        ]
        assert [d.prompt_token_ids for d in deltas] == [(1, 2), None]

    def test_ids_alone_share_their_text(self) -> None:
        chunks = [
            piece("ab", token_ids=[7, 8]),
            piece("", token_ids=[9]),
            piece("c", token_ids=[10], finish="stop"),
        ]
        deltas = translate(chat(return_token_ids=True), *chunks)
        assert [[(t.id, t.text) for t in d.tokens] for d in deltas] == [
            [(7, ""), (8, "ab")],
            [(9, ""), (10, "c")],
        ]

    @pytest.mark.parametrize("absurd", [-1, True, 2**31, 2**70, 1.0, "7", None])
    def test_ids_that_are_none_make_no_sense(self, absurd: Any) -> None:
        for name in ("token_ids", "prompt_token_ids"):
            fields: dict[str, Any] = {name: [absurd]}
            with pytest.raises(TypeError, match="not numbers"):
                translate(completion("a", return_token_ids=True), piece("a", "a", **fields))
        deltas = translate(completion("a"), piece("a", finish="stop", stop_reason=absurd))
        assert deltas[-1].stop_reason is None

    def test_bytes_are_a_list(self) -> None:
        entry = {"token": "a", "logprob": -1.0, "bytes": 10**12}
        first = chunk(content="a")
        first["choices"][0]["logprobs"] = {"content": [entry]}
        with pytest.raises(TypeError, match="not a list"):
            translate(chat(sampling=SamplingParams(logprobs=0)), first)

    def test_no_more_alternatives_than_asked_for(self) -> None:
        first = piece("a", "a", finish="stop")
        first["choices"][0]["logprobs"]["top_logprobs"] = [{"b": -0.5, "a": -1.0, "c": -2.0}]
        for asked in (0, 2):
            deltas = translate(completion("x", sampling=SamplingParams(logprobs=asked)), first)
            assert [top.raw for top in deltas[0].tokens[0].top] == [b"b", b"a"][:asked]


class TestEnd:
    @pytest.mark.parametrize(
        ("theirs", "ours", "is_cut"),
        [
            ("stop", "stop", False),
            ("STOP", "stop", False),
            ("eos_token", "stop", False),
            ("length", "length", True),
            ("MAX_TOKENS", "length", True),
            ("function_call", "tool_calls", False),
            ("stop_sequence", "stop", True),
            ("something_new", "stop", True),
            ("", "stop", True),
        ],
    )
    def test_finish_reasons(self, theirs: str, ours: str, is_cut: bool) -> None:  # contract 2.9
        deltas = translate(chat(), chunk(content="a", finish=""), chunk(content="b", finish=theirs))
        assert texts(deltas) == {"content": "ab"}
        assert (deltas[-1].finish_reason, deltas[-1].is_cut) == (ours, is_cut)
        assert all(d.finish_reason is None for d in deltas[:-1])

    def test_a_stop_reason_is_an_id_or_a_stop_string_of_the_callers(self) -> None:
        request = completion("x", sampling=SamplingParams(stop=("END",)))
        for theirs, ours in (("END", "END"), (7, 7), ("hunter2", None), (None, None)):
            deltas = translate(request, piece("a", finish="stop", stop_reason=theirs))
            assert deltas[-1].stop_reason == ours

    @pytest.mark.parametrize("ids", [None, [1, 2, 3]])
    def test_the_token_of_a_stop_id_is_not_given(self, ids: list[int] | None) -> None:
        """It may stand for text, and that text is not given, so that no hook is shown it."""
        request = completion("x", sampling=SamplingParams(stop_token_ids=(3,), logprobs=0))
        last = piece(" sky", " sky", " blue", finish="stop", stop_reason=3, token_ids=ids and ids[1:])
        deltas = translate(request, piece("The", "The", token_ids=ids and ids[:1]), last)
        assert texts(deltas) == {"content": "The sky"}
        assert told(deltas) == [("The", "The"), (" sky", " sky")]

    def test_without_a_stop_id_the_end_of_sequence_is_given(self) -> None:
        request = completion("x", sampling=SamplingParams(logprobs=0))
        deltas = translate(request, piece("The", "The", "</s>", finish="stop"))
        assert told(deltas) == [("The", "The"), ("</s>", "")]

    def test_usage_rides_on_the_last_delta(self) -> None:
        counts = {"prompt_tokens": 3, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2}}
        translator = StreamTranslator(chat(sampling=SamplingParams(n=2)))
        assert translator.feed(chunk(0, content="a", finish="stop"))[-1].finish_reason == "stop"
        assert [d.usage for d in translator.feed(chunk(1, content="b"))] == [Usage(0, 2)]
        assert translator.feed(chunk(1, finish="length")) == []
        assert translator.feed({"choices": [], "usage": counts}) == []
        (last,) = translator.finish(complete=True)
        assert (last.finish_reason, last.usage) == ("length", Usage(3, 9, cached_tokens=2))

    @pytest.mark.parametrize(
        "absurd", [-1, True, 1.5, 1e30, 2**53 + 1, 2**64, 10**400, "7", [7], {"a": 1}, float("inf")]
    )
    def test_a_count_that_makes_no_sense_is_dropped(self, absurd: Any) -> None:
        details = {"prompt_tokens_details": {"cached_tokens": absurd}}
        for told in (
            {"prompt_tokens": absurd, "completion_tokens": absurd, **details},
            {"prompt_tokens_details": absurd, "completion_tokens_details": absurd, "prompt_tokens": absurd},
            absurd,
        ):
            deltas = translate(completion((1, 2)), piece("a"), piece("b", finish="stop"), {"usage": told})
            assert deltas[-1].usage == Usage(2, 2)
        told = {"prompt_tokens": absurd, "completion_tokens": 9, **details}
        deltas = translate(completion((1, 2)), piece("a", finish="stop"), {"usage": told})
        assert deltas[-1].usage == Usage(2, 9)

    def test_continuous_usage_is_honoured(self) -> None:
        translator = StreamTranslator(chat())
        (delta,) = translator.feed(
            chunk(content="a b") | {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}
        )
        assert delta.usage == Usage(5, 2)
        (delta,) = translator.feed(chunk(content="c"))
        assert delta.usage == Usage(5, 3)

    def test_what_comes_after_the_end_is_dropped(self) -> None:
        deltas = translate(chat(), chunk(content="a", finish="stop"), chunk(content="b", finish="stop"))
        assert [(d.text, d.finish_reason) for d in deltas] == [("a", "stop")]

    def test_an_index_used_as_a_counter(self) -> None:
        deltas = translate(chat(), chunk(0, content="a"), chunk(1, content="b"), chunk(2, finish="stop"))
        assert {d.index for d in deltas} == {0}
        assert texts(deltas) == {"content": "ab"}

    @pytest.mark.parametrize(
        ("chunks", "complete"),
        [([], True), ([chunk(content="a")], False), ([chunk(content="a", finish="abort")], True)],
    )
    def test_a_stream_that_breaks_off_is_an_error(self, chunks: list[dict[str, Any]], complete: bool) -> None:
        with pytest.raises(EngineError) as error:
            translate(chat(), *chunks, complete=complete)
        assert error.value.status == 502

    def test_an_output_that_never_began_is_an_error(self) -> None:
        with pytest.raises(EngineError):
            translate(chat(sampling=SamplingParams(n=2)), chunk(content="a", finish="stop"))


words = st.lists(st.sampled_from(["a", " b", "cd", " ", "é", "<|x|>"]), max_size=10)


@given(reasoning=words, content=words, cuts=st.sets(st.integers(0, 25)), lag=st.integers(0, 3))
def test_however_an_upstream_cuts_it_is_the_same(
    reasoning: list[str], content: list[str], cuts: set[int], lag: int
) -> None:
    """Chunks of any number of tokens; special tokens have no text; with stop strings the text lags."""
    drawn = (
        [("reasoning", word) for word in reasoning]
        + [("x", "</think>")]
        + [("content", word) for word in content]
    )
    whole = {
        channel: "".join(w for c, w in drawn if c == channel and "<" not in w)
        for channel in ("reasoning", "content")
    }
    sampling = SamplingParams(logprobs=0, stop=("z" * (lag + 1),) if lag else ())
    translator = StreamTranslator(chat(sampling=sampling))
    deltas: list[Delta] = []
    come, sent, batch = {"reasoning": "", "content": ""}, {"reasoning": 0, "content": 0}, []
    for i, (channel, word) in enumerate(drawn):
        batch.append({"token": word, "logprob": -0.1})
        if channel in come and "<" not in word:
            come[channel] += word
        if i in cuts or i == len(drawn) - 1:
            held = lag if i < len(drawn) - 1 else 0
            fields: dict[str, Any] = {}
            for name in ("reasoning", "content"):
                # The text lags as one stream: what is held of content is all that may be held.
                back = held if name == "content" or channel == "reasoning" else 0
                ready = max(sent[name], len(come[name]) - back)
                fields[name] = come[name][sent[name] : ready]
                sent[name] = ready
            step = chunk(finish="stop" if i == len(drawn) - 1 else None, **fields)
            step["choices"][0]["logprobs"] = {"content": batch}
            deltas += translator.feed(step)
            batch = []
    deltas += translator.finish(complete=True)
    assert texts(deltas).get("reasoning", "") == whole["reasoning"]
    assert texts(deltas).get("content", "") == whole["content"]
    assert [token.raw.decode() for d in deltas for token in d.tokens] == [word for _, word in drawn]
    for delta in deltas:
        if delta.tokens:
            assert "".join(token.text for token in delta.tokens) == delta.text
        assert all(token.text == ("" if b"<" in token.raw else token.raw.decode()) for token in delta.tokens)
    assert [d.finish_reason for d in deltas] == [None] * (len(deltas) - 1) + ["stop"]


def test_a_tool_calls_name_is_waited_for() -> None:
    parts = [
        {"index": 0, "function": {"arguments": "{"}},
        {"index": 0, "function": {"name": "f", "arguments": "}"}},
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]} for part in parts]
    calls = [d for d in translate(chat(), *chunks, chunk(finish="tool_calls")) if d.tool_call]
    assert [(d.tool_call.name, d.text) for d in calls] == [("f", "{}")]
