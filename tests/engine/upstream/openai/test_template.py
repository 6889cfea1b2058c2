"""An event that is read by the template of an earlier one means the same as if all of it were parsed."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError, Usage
from engine.protocol.deltas import join
from engine.upstream.json_text import OPEN_TEXTS, read_object
from engine.upstream.limits import LONG_TEXT, OutputCount, Patience, UpstreamOptions
from engine.upstream.openai.stream import StreamTranslator
from engine.upstream.openai.template import TextTemplate
from engine.upstream.sse import EventReader, SSEDecoder
from engine.upstream.usage import UsageCount
from tests.engine.upstream.openai.asked import chat
from tests.helpers import examples, options_with

EVENT = b'{"id":"c","choices":[{"index":0,"delta":{"content":%b},"finish_reason":null}]}'


def frame(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


def alike(translator: StreamTranslator, *events: bytes) -> Delta | None:
    return translator.alike(b"".join(map(frame, events))) if translator.alike is not None else None


def deltas_of(events: list[bytes], *, by_template: bool) -> tuple[list[Any], int]:
    """The deltas, or the error that ends them, and the number of events that the template read."""
    translator, said, num_alike = StreamTranslator(chat()), list[Any](), 0
    try:
        for data in events:
            delta = alike(translator, data) if by_template else None
            if delta is not None:
                num_alike += 1
                said.append(delta)
            else:
                said += translator.feed(read_object(data, OPEN_TEXTS), data if by_template else None)
        said += translator.finish(complete=True)
    except (LookupError, TypeError, AttributeError, ValueError, EngineError) as error:
        said.append(type(error))
    return said, num_alike


STRINGS = (
    st.text(max_size=6).map(orjson.dumps)
    | st.text(max_size=6).map(json.dumps).map(str.encode)
    | st.sampled_from(
        [
            *(
                b'"a"',
                b'""',
                b'"weir"',
                b'"\\ud83d"',
                b'"\\ude00 a"',
                b'"\xed\xa0"',
                b'"WeirTextMark"',
                b' "a" ',
                b'"\\""',
                b'"\\ud800"',
                b'"\\ud83d\\ude00"',
            ),
            *(
                b"null",
                b"1",
                b"NaN",
                b'["a"]',
                b'"a',
                b'a"',
                b'"\n"',
                b'\n"a"',
                b'"a"\n',
                b'\r"a"',
                b'\n\n"a"',
                b'"\xff"',
                b'"\\',
                b'\\"',
                b"",
            ),
            *(b'"a","content":"b"', b'"a","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]'),
            *(
                b'"a"},"finish_reason":"stop","x":{"content":"b"',
                b'"a","reasoning":"b"',
                b'"id"',
                b'"choices"',
            ),
        ]
    )
)
"""What stands in the place of the content: mostly JSON strings."""

SHAPES = st.sampled_from(
    [
        EVENT,
        EVENT.replace(b":", b": ").replace(b",", b", "),
        EVENT.replace(b'"delta"', b'"delta":{"content":"x"},"delta"'),
        EVENT.replace(b'"content"', b'"content":"x","content"'),
        EVENT.replace(b"%b}", b'%b,"content":"x"}'),
        EVENT.replace(b"%b}", b'%b,"reasoning_content":"r"}'),
        EVENT.replace(b'"id":"c"', b'"id":"\\"a"'),
        EVENT.replace(b'"id":"c"', b'"id":%b').replace(b'"content":%b', b'"content":"a"'),
        EVENT.replace(b'"id":"c"', b'"%b":"c"').replace(b'"content":%b', b'"content":"a"'),
        EVENT.replace(b"null}", b'null,"x":"\\%b}').replace(b'"content":%b', b'"content":"a"'),
        EVENT.replace(b"null", b'"stop"'),
        EVENT.replace(b"null", b'null,"logprobs":{"content":[{"token":"a","logprob":-1}]}'),
        EVENT.replace(b"]}", b'],"usage":{"prompt_tokens":1,"completion_tokens":2}}'),
        EVENT.replace(b"]}", b'],"error":"e"}'),
        b'{"choices":[{"finish_reason":null,"delta":{"role":"assistant","content":%b},"index":0}],"id":"c"}',
        b'{"choices":[{"index":0,"text":%b}]}',
        b"[%b]",
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Events that mostly have one shape, and differ in what stands in one place of it."""
    usual = draw(SHAPES)
    shapes = draw(st.lists(st.just(usual) | st.just(usual) | SHAPES, max_size=8))
    return [
        EVENT % b'"a"',
        usual.replace(b"%b", b'"a"'),
        *(one.replace(b"%b", draw(STRINGS)) for one in shapes),
    ]


@examples(400)
@given(streams())
@example([EVENT % text for text in (b'"a"', b'"b"', b'"a","content":"c"', b'"d"')])
def test_a_template_changes_no_delta(events: list[bytes]) -> None:
    assert deltas_of(events, by_template=True)[0] == deltas_of(events, by_template=False)[0]


@examples(400)
@given(streams(), st.lists(st.integers(1, 300)), st.booleans())
def test_a_template_changes_no_delta_of_a_stream_wherever_it_is_cut(
    events: list[bytes], cuts: list[int], cuts_at_events: bool
) -> None:
    frames = [*map(frame, events)]
    pieces = [[frame] for frame in frames] if cuts_at_events else [list(cut(b"".join(frames), cuts))]

    def translated(*, by_template: bool) -> list[Any]:
        patience = Patience(UpstreamOptions(), lambda: 0.0)
        reader = EventReader(patience, SSEDecoder(), lambda event: event.data == b"[DONE]")
        translator, said = StreamTranslator(chat()), list[Any]()
        try:
            for data in chain.from_iterable(pieces):
                may_be_alike = by_template and translator.alike is not None and len(data) <= reader.max_alike
                if may_be_alike and translator.alike and (delta := translator.alike(data)) is not None:
                    said.append(delta)
                    continue
                for event in reader.feed(data):
                    said += translator.feed(
                        read_object(event.data, OPEN_TEXTS), event.data if by_template else None
                    )
        except (LookupError, TypeError, AttributeError, ValueError, EngineError) as error:
            said.append(type(error))
        return said

    assert joined(translated(by_template=True)) == joined(translated(by_template=False))


def joined(said: list[Any]) -> list[Any]:
    """The deltas, joined as an engine joins those that come together, and the error that ends them."""
    deltas = [one for one in said if isinstance(one, Delta)]
    return [*join(deltas), *said[len(deltas) :]]


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        if data:
            yield data[:size]
            data = data[size:]
    if data:
        yield data


def empty_template() -> TextTemplate:
    return TextTemplate(OutputCount(chat(), "", 1000, UsageCount(Usage(0, 0))))


@given(st.lists(STRINGS, max_size=5), st.data())
def test_a_template_changes_no_delta_of_bytes_that_are_cut_and_joined(texts: list[bytes], data: Any) -> None:
    events = [EVENT % text for text in (b'"a"', b'"b"', *texts)]
    whole = b"".join(events)
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, len(whole)))
    events.insert(2, whole[begin:end])
    assert deltas_of(events, by_template=True)[0] == deltas_of(events, by_template=False)[0]


def test_events_that_differ_in_their_text_alone_are_not_parsed() -> None:
    events = [EVENT % orjson.dumps(text) for text in ("one", " two", ' "three"\n', " \U0001f600", " \u2028")]
    said, num_alike = deltas_of(events, by_template=True)
    assert "".join(delta.text for delta in said) == 'one two "three"\n \U0001f600 \u2028'
    assert num_alike == len(events) - 1


@pytest.mark.parametrize("text", ["a", "WeirTextMark"])
@pytest.mark.parametrize(
    "event",
    [
        b'{"choices":[{"delta":{"content":%b},"x":"\\%b}]}',
        b'{"choices":[{"delta":{"content":%b},"x":%b}]}',
        b'{"choices":[{"delta":{"content":%b},%b:1}]}',
        b'{"choices":[{"delta":{"content":%b},"x":{"content":%b}}]}',
    ],
)
def test_a_string_elsewhere_is_no_place_for_a_text(event: bytes, text: str) -> None:
    template, string = empty_template(), orjson.dumps(text)
    data = event % (string, string)
    template.learn(data, read_object(data))
    assert template.delta_of(frame(event % (string, b'"other"'))) is None


@pytest.mark.parametrize(
    "text", [b' "b"', b'"b" ', b'\n"b"', b'"b"\n', b'"b\n"', b"1", b'""', b'"b","c":"d"']
)
def test_other_bytes_than_one_string_are_no_text(text: bytes) -> None:
    template = empty_template()
    template.learn(EVENT % b'"a"', read_object(EVENT % b'"a"'))
    assert template.delta_of(frame(EVENT % b'"b"')) == Delta(text="b", usage=Usage(0, 1))
    assert template.delta_of(frame(EVENT % text)) is None


@pytest.mark.parametrize(
    "data",
    [
        frame(EVENT % b'"b"')[:-1],
        frame(EVENT % b'"b"')[:-2],
        frame(EVENT % b'"b"')[1:],
        EVENT % b'"b"' + b"\n\n",
        b"event: a\n" + frame(EVENT % b'"b"'),
        b": a\n" + frame(EVENT % b'"b"'),
        frame(EVENT % b'"b"') + b"\n",
        frame(EVENT % b'"b"') + b"data: ",
        frame(EVENT % b'"b"') + frame(EVENT % b'"c"')[:-1],
        frame(EVENT % b'"b"') + b"\n" + frame(EVENT % b'"c"'),
        frame(EVENT % b'"b"') + b"id: 1\n" + frame(EVENT % b'"c"'),
        frame(EVENT % b'"b"') + frame(EVENT.replace(b'"id"', b'"ID"') % b'"c"') + frame(EVENT % b'"d"'),
        frame(EVENT % b'"b"').replace(b"\n", b"\r\n"),
    ],
)
def test_only_bytes_that_are_whole_events_are_alike(data: bytes) -> None:
    template = empty_template()
    template.learn(EVENT % b'"a"', read_object(EVENT % b'"a"'))
    assert template.delta_of(data) is None


def test_an_event_of_several_lines_is_not_learned() -> None:
    template, event = empty_template(), EVENT.replace(b",", b",\n")
    template.learn(event % b'"a"', read_object(event % b'"a"'))
    assert template.delta_of(frame(event % b'"b"')) is None


def test_a_place_is_learned_anew_as_long_as_that_is_of_use() -> None:
    events = [(EVENT % orjson.dumps(str(n))).replace(b'"c"', b'"%d"' % (n // 2)) for n in range(40)]
    assert deltas_of(events, by_template=True)[1] == 20
    each_other = [(EVENT % orjson.dumps(str(n))).replace(b'"c"', b'"%d"' % n) for n in range(20)]
    more = [EVENT % b'"a"'] * 2
    assert deltas_of(each_other + more, by_template=True)[1] == 0


def test_a_text_that_is_no_longer_the_content_is_not_read_by_a_template() -> None:
    reasoning = b'{"choices":[{"index":0,"delta":{"reasoning_content":"r"}}]}'
    said, _ = deltas_of([EVENT % b'"a"', reasoning, EVENT % b'"b"'], by_template=True)
    assert [delta.channel for delta in said if isinstance(delta, Delta) and delta.text] == [
        "content",
        "reasoning",
        "content",
    ]


def test_events_that_come_together_are_one_delta() -> None:
    translator = StreamTranslator(chat())
    for text in (b'"a"', b'"b"'):
        translator.feed(read_object(EVENT % text, OPEN_TEXTS), EVENT % text)
    assert alike(translator, EVENT % b'"c"', EVENT % b'"d"') == Delta(text="cd", usage=Usage(0, 4))
    assert alike(translator, EVENT % b'"e"', EVENT % b'""') is None


def test_a_text_that_is_long_is_left_to_be_cut_in_pieces() -> None:
    translator = StreamTranslator(chat())
    translator.feed(read_object(EVENT % b'"a"', OPEN_TEXTS), EVENT % b'"a"')
    long = EVENT % orjson.dumps("b" * (LONG_TEXT // 2 + 1))
    assert alike(translator, long) is not None
    assert alike(translator, long, long) is None


def test_events_that_are_too_much_are_left_to_be_counted_one_by_one() -> None:
    translator = StreamTranslator(chat(), options_with(UpstreamOptions, max_upstream_output=3))
    translator.feed(read_object(EVENT % b'"a"', OPEN_TEXTS), EVENT % b'"a"')
    assert alike(translator, EVENT % b'"b"', EVENT % b'"cd"') is None
    assert alike(translator, EVENT % b'"bc"') == Delta(text="bc", usage=Usage(0, 2))
    assert alike(translator, EVENT % b'"d"') is None
