"""The guard of tool calls: a client gets a call if the policy allows it, and never a part of another."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.parsers import Parsers
from engine.protocol import Delta, Deltas, GenerationRequest, ToolCall
from hooks.builtin.link_rules.hosts import addresses_in
from hooks.builtin.pii import Pii
from hooks.builtin.tool_policy.arguments import Arguments, Number
from hooks.builtin.tool_policy.conditions import Condition
from hooks.builtin.tool_policy.truth import Truth
from hooks.builtin.tools import DENIED, UNREADABLE, Tools
from hooks.builtin.wrap import Wrap
from hooks.testing import play, stream_of
from hooks.testing.play import collect
from tests.helpers import (
    Teller,
    examples,
    finish_of,
    guard_all,
    make_deltas,
    make_request,
    pipeline_of,
    text_of,
)
from tests.hooks.builtin.streams import PLACES, SELDOM_IN_A_WORKER, Watch, cut

TOLD = "[withheld]"
ASKED = "Please  pay DE89 3704 to Ann@x.com, see www.a-site.com/page. Then delete the file."


def conversation(*results: tuple[str, Any], asked: str = ASKED) -> GenerationRequest:
    """A user's words, and what tools have answered since."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    for i, (name, result) in enumerate(results):
        call = {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": json.dumps(result)})
    return make_request(messages=tuple(messages))


async def released(
    guards: Any,
    *calls: tuple[str, list[str]],
    request: GenerationRequest | None = None,
    ends_in_call: bool = False,
    said: str = "",
) -> list[Delta]:
    """What a client gets of an answer with these calls, each of a name and its arguments in pieces."""
    deltas = make_deltas([said], finish=False) if said else []
    for i, (name, pieces) in enumerate(calls):
        deltas += make_deltas(pieces, finish=False, channel="tool_call", tool_call=ToolCall(i, name))
    end: dict[str, Any] = {"finish_reason": "tool_calls"}
    if ends_in_call:
        end |= {"channel": "tool_call", "tool_call": ToolCall(len(calls) - 1, calls[-1][0])}
    guards = guards if isinstance(guards, list) else [guards]
    return await guard_all(pipeline_of(*guards), [*deltas, Delta(**end)], request or conversation())


async def allows(rule: dict[str, Any], arguments: Any, request: GenerationRequest | None = None) -> bool:
    rules: Any = [{"tools": ["call"], **rule}]
    guard = Tools(rules)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    deltas = await released(guard, ("call", [text]), request=request)
    assert text_of(deltas, "tool_call") in ("", text)
    assert finish_of(deltas)[0] == ("tool_calls" if any(d.tool_call for d in deltas) else "stop")
    return finish_of(deltas)[0] == "tool_calls"


RESULT = ("find_people", [{"mail": "bob@y.com", "note": "mail eve@z.com", "role": {"boss": 1}}])


@pytest.mark.parametrize(
    ("condition", "right", "wrong"),
    [
        ({}, ["a", 1, [], {}], []),
        ({"values": ["a", 5, True]}, ["a", 5, 5.0, True], ["A", "5", 1, False, ["a"]]),
        ({"pattern": r"\d+"}, ["12", 12], ["12\n", "a12", 1.5, ["12"], {"a": "12"}]),
        ({"pattern": "true"}, [True], [False]),
        (
            {"host": ["x.com", "*.y.com"]},
            ["x.com", "https://X.com:8/a", "//a.y.com", "http://a@x.com/b", "http://x.com."],
            ["https://x.com\\@z.com", "y.com", "x.com.z.com", "javascript:x.com", "http://z.com/x.com", 5],
        ),
        (
            {"host": ["x.com", "ftp://z.com", "bücher.example", "::1"]},
            ["ftp://z.com/a", "http://xn--bcher-kva.example", "http://[0:0::1]:8/a", "x.com:8/a"],
            ["ftp://x.com", "z.com", "//z.com", "https://ｘ.com", "http://bücher.example", "ann@x.com"],
        ),
        (
            {"host": ["x.com", "*.y.com"]},
            ["x.com"],
            ["http://z.com%2f.y.com", "http://z.com;.y.com", "http://z.com@a@x.com", "http:/z.com"],
        ),
        (
            {"links": ["x.com"]},
            ["no address", "at x.com/a", "www.a-site.com/page", "mail b@z.com", "read a.txt, e.g. now"],
            ["see evil.com", "http://1.2.3.4/x", "x.com and www.z", "//z.com/a", "evil.zip/a", ["x.com"]],
        ),
        (
            {"links": ["x.com"]},
            ["_x.com_"],
            ["_https://z.test_", "_evil.com_", "http://x.com\\@z.test", "http://x.com@z.test", "Evil。Com"],
        ),
        (
            {"links": ["x.com"]},
            [r"https\://x.com/a", "![a](\n> //x.com/a)", "mailto:b@z.com"],
            [
                r"https\://z.test/a",
                "![a](\n> //z.test/a)",
                r"http:\/\/z.test\/a",
                "<img src=//z/a>",
                "[::1]/a",
            ],
        ),
        (
            {"links": ["x.com", "xn--bcher-kva.example", "*"]},
            ["http://bücher.example/a", "[a](http:&#47;/x.com/b) http://x.com/a"],
            ["[a](http:&#47;/x.com&#92;@z.test) http://x.com/a", "http://x.com/a http://-ü.test/"],
        ),
        (
            {"path": ["/srv/data", "out"]},
            ["/srv/data", "/srv/data/a/../b", "/srv/./data/a", "out/a.txt"],
            [
                "/srv/data/../x",
                "/srv/database",
                "a",
                "../out/a",
                "~/a",
                "/srv/data/%2e%2e/a",
                "out\\a",
                "",
                5,
            ],
        ),
        ({"path": ["."]}, ["a", "a/../b", "..a"], ["/a", "a/../../b", ".."]),
        ({"range": [1, 10.5]}, [1, 10.5, 1e1], [0.99, 11, "5", True, None]),
        ({"range": [None, 9]}, [-1e300], [9.01]),
        ({"length": [1, 3]}, ["abc", [1]], ["", "abcd", 12, [1, 2, 3, 4]]),
        (
            {"from": ["user"]},
            ["ann@x.com", "de89 3704", "DE89\n3704", "www.a-site.com", "the"],
            ["a-site.com", "nn@x.com", "ann@x.co", "370", "bob@y.com", "", ["the"]],
        ),
        (
            {"from": [{"tool": "find_*", "at": "/*/mail"}, {"tool": "find_people", "at": "/0/role/~"}]},
            ["bob@y.com", "boss"],
            ["eve@z.com", "ann@x.com", "1"],
        ),
        ([{"values": ["a"]}, {"pattern": "b+", "length": [2, 2]}], ["a", "bb"], ["b", "bbb"]),
    ],
)
@SELDOM_IN_A_WORKER
async def test_a_condition_is_for_every_value_of_an_argument(condition: Any, right: Any, wrong: Any) -> None:
    request = conversation(RESULT)
    for value in right:
        assert await allows({"when": {"/a": condition}}, {"a": value}, request), value
    for value in wrong:
        assert not await allows({"when": {"/a": condition}}, {"a": value}, request), value
        assert not await allows({"when": {"/a/*": condition}}, {"a": [*right, value]}, request), value
    assert await allows({"when": {"/a/*": condition}}, {"a": right}, request)


def test_an_address_that_readers_disagree_on_stays_so_with_one_of_the_same_host() -> None:
    unclear, clear = r"[a](http:&#47;/x.com&#92;b)", "http://x.com/a"
    for text in (f"{unclear} {clear}", f"{clear} {unclear}"):
        assert addresses_in(text) >= {("http://x.com", None), ("http://x.com", "x.com")}


async def test_a_missing_value_is_wrong_unless_it_is_optional() -> None:
    when = {"/to/*": {"pattern": "a"}, "/cc/*": {"pattern": "a"}}
    for arguments, is_right in [
        ({"to": ["a"]}, True),
        ({"to": ["a"], "cc": None}, True),
        ({"to": ["a"], "cc": []}, True),
        ({"to": ["a"], "cc": ["b"]}, False),
        ({"to": ["a"], "cc": "a"}, False),  # a tool may take it for one
        ({"cc": ["a"]}, False),
        ({"to": []}, False),
    ]:
        assert await allows({"when": when, "optional": ["/cc/*"]}, arguments) is is_right, arguments


@pytest.mark.parametrize(
    "arguments",
    [
        *('{"a": "b"', '{"a": "b"}}', "{a: 1}", '["b"]', '"b"', "{'a': 'b'}", "NaN", '{"a": "b",}'),
        *(
            '{"a": "b", "a": "b"}',
            r'{"a": "b", "\u0061": "b"}',
            '{"a": "b", "A": "b"}',
            '{"a": "b", "c": {"d": 1, "d": 1}}',
        ),
    ],
)
async def test_arguments_that_are_not_one_json_object_are_no_call(arguments: str) -> None:
    guard = Tools([{"tools": ["call"], "when": {"/a": {"pattern": "b"}, "/z": {}}, "optional": ["/z"]}])
    deltas = await released(guard, ("call", [arguments]))
    got = text_of(deltas, "tool_call")
    assert got == "" or (got == '{"a": "b"}' and finish_of(deltas) == ("content_filter", UNREADABLE))


async def test_the_first_rule_that_applies_decides() -> None:
    rules: Any = [
        {"tools": ["send"], "effect": "deny", "when": {"/to/*": {"pattern": "eve"}}},
        {"tools": ["send"], "asked": r"\bpay\b"},
        {"tools": ["get_*", "list"]},
        {"tools": ["drop"], "effect": "deny_if_tainted"},
        {"tools": ["drop"]},
    ]
    ann, both, odd = '{"to": ["ann"]}', '{"to": ["ann", "eve"]}', '{"to": "eve"}'
    tainted = make_request(taint="tool")
    for default in ("deny", "allow"):
        guard = Tools(rules, default=default)
        for name, arguments, request, is_right in [
            ("send", ann, conversation(), True),
            ("send", both, conversation(), False),
            ("send", odd, conversation(), False),  # it cannot be judged
            ("send", ann, conversation(asked="Hello"), False),
            ("get_x", "no JSON", conversation(), True),
            ("drop", "", conversation(), True),
            ("drop", "", tainted, False),
            ("other", "{}", conversation(), default == "allow"),
        ]:
            deltas = await released(guard, (name, [arguments]), request=request)
            assert any(delta.tool_call for delta in deltas) is is_right, (name, arguments)


async def test_a_strangers_words_are_not_the_users_and_wrap_hides_nothing_from_it() -> None:
    rules: Any = [
        {"tools": ["pay"], "when": {"/to": {"from": ["user", {"tool": "find_*", "at": "/*/mail"}]}}},
        {"tools": ["drop"], "effect": "deny_if_tainted"},
        {"tools": ["drop"]},
    ]
    for method in ("delimit", "datamark", "encode"):
        guards = [Tools(rules), Wrap(method=method)]
        for name, to, request, is_right in [
            ("pay", "ann@x.com", conversation(RESULT), True),
            ("pay", "bob@y.com", conversation(RESULT), True),
            ("pay", "eve@z.com", conversation(RESULT), False),
            ("drop", "", conversation(), True),
            ("drop", "", conversation(RESULT), False),
        ]:
            deltas = await released(guards, (name, [json.dumps({"to": to})]), request=request)
            assert any(delta.tool_call for delta in deltas) is is_right, (name, to)


@pytest.mark.parametrize(
    "role", ["tool", "function", "ipython", "observation", "web_search_tool_result", "function_call_output"]
)
async def test_a_result_is_found_whatever_its_role_is_called(role: str) -> None:  # contract 8.6
    rule = {"when": {"/to": {"from": [{"tool": "find_*", "at": "/*/mail"}]}}}
    request = conversation(RESULT)
    *others, result = request.messages
    request = replace(request, messages=(*others, {**result, "role": role}))
    assert await allows(rule, {"to": "bob@y.com"}, request)
    assert not await allows(rule, {"to": "eve@z.com"}, request)


async def test_a_value_that_comes_back_is_still_the_users() -> None:
    rules: Any = [{"tools": ["pay"], "when": {"/to": {"from": ["user"]}}}]
    for tools in (0, 1):  # contract 9.11
        guards: list[Any] = [Pii(entities=["EMAIL_ADDRESS"], prompt="redact", restore=True)]
        guards.insert(tools, Tools(rules))

        async def answer(request: GenerationRequest) -> Deltas:
            masked = request.messages[0]["content"]
            to = json.dumps({"to": masked.removeprefix("Pay ")})
            yield Delta(text=to, channel="tool_call", tool_call=ToolCall(0, "pay"))
            yield Delta(finish_reason="tool_calls")

        got = await collect(pipeline_of(*guards), conversation(asked="Pay ann@x.com"), answer)
        assert got.tool_calls == [("pay", '{"to": "ann@x.com"}')]


async def test_a_call_is_held_no_longer_than_its_conditions_are_open() -> None:
    guard = Watch(Tools([{"tools": ["write"], "when": {"/path": {"path": ["out"]}}}, {"tools": ["free"]}]))
    head, body = '{"path": "out/a", "text": "', "word " * 50
    deltas = await released(guard, ("write", [*head, *body, '"}']), ("free", list("[1")))
    assert text_of(deltas, "tool_call") == head + body + '"}[1'
    assert guard.most_held == head.index(",") - 1


async def test_more_values_than_it_looks_for_are_not_right() -> None:
    values, addresses = ["ann@x.com"] * 257, [f"a{i}.com" for i in range(257)]
    said = conversation(asked=" ".join([*values, *addresses]))
    for condition, name in (({"from": ["user"]}, "/a/*"), ({"links": []}, "/b")):
        for num in (256, 257):
            arguments = {"a": values[:num], "b": " ".join(addresses[:num])}
            assert await allows({"when": {name: condition}}, arguments, said) is (num == 256)


async def test_more_arguments_than_it_may_hold_are_no_call() -> None:
    guard = Tools([{"tools": ["call"], "when": {"/a": {}}}], max_held=20)
    for text, is_right in [
        ('{"b":"12345","a":123}', False),
        ('{"b":"1234","a":123}', True),
        ("{" * 30, False),
    ]:
        for pieces in (list(text), [text], [text[:9], text[9:]]):
            watch = Watch(guard)
            deltas = await released(watch, ("call", pieces))
            assert text_of(deltas, "tool_call") == (text if is_right else ""), text
            assert watch.most_held <= guard.max_hold


async def test_the_answer_says_at_its_end_that_a_call_was_withheld() -> None:
    guard = Tools([{"tools": ["call"], "when": {"/a": {"values": [1]}}}], text=TOLD)
    good, bad = ("call", ['{"a": 1}']), ("call", ['{"a": 2}'])
    for ends_in_call in (False, True):
        deltas = await released(guard, bad, good, bad, said="Hi", ends_in_call=ends_in_call)
        assert text_of(deltas) == f"Hi\n\n{TOLD}"
        assert {delta.tool_call for delta in deltas} == {None, ToolCall(1, "call")}
        assert finish_of(deltas) == ("tool_calls", None)
        no_arguments = await released(guard, ("other", [""]), ends_in_call=ends_in_call)
        assert text_of(no_arguments) == TOLD
        assert not any(delta.tool_call for delta in no_arguments)
        assert text_of(await released(guard, good, ends_in_call=ends_in_call)) == ""
    as_json = make_request(extra={"response_format": {"type": "json_object"}})
    assert text_of(await released(guard, bad, request=as_json)) == ""


async def test_it_ends_the_request_instead() -> None:
    for action in ("terminate", "rewind"):
        guard = Tools(action=action)
        deltas = await released(guard, ("call", ["{}"]), said="Hi")
        assert finish_of(deltas) == ("content_filter", DENIED)
        assert (text_of(deltas), text_of(deltas, "tool_call")) == ("Hi", "")


CALL = ["<tool_call>", '{"name": "drop", "arguments": ', '{"id":', " 7", "}", "}", "</tool_call>", ""]


@SELDOM_IN_A_WORKER
async def test_the_model_writes_something_else_instead() -> None:
    def tell(said: tuple[str, ...]) -> list[str]:
        return [CALL[len(said)], "Sorry."] if said == tuple(CALL[: len(said)]) else [""]

    rules: Any = [{"tools": ["drop"], "when": {"/id": {"range": [0, 5]}}}]
    teller = Teller(tell, parsers=Parsers(None, "hermes"))
    request = make_request(tools=({"type": "function", "function": {"name": "drop"}},))
    deltas = await guard_all(pipeline_of(Tools(rules, action="rewind")), teller, request, can_rewind=True)
    assert teller.rewinds
    assert (text_of(deltas), text_of(deltas, "tool_call")) == ("Sorry.", "")
    assert finish_of(deltas) == ("stop", None)


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ({"tools": ["a"], "when": {"/x": {"patern": "x"}}}, r"rules\[1\].when./x.patern"),
        ({"tools": []}, r"rules\[1\].tools"),
        ({"tools": ["a"], "effect": "stop"}, r"rules\[1\].effect"),
        ({"tools": ["a"], "when": {"/x": [{"from": ["usr"]}]}}, r"rules\[1\].when./x\[0\].from\[0\]"),
        ({"tools": ["a"], "when": {"x": {}}}, r"rules\[1\] \(a\): x: .* JSON pointer"),
        ({"tools": ["a"], "when": {"/x": {"pattern": "("}}}, r"rules\[1\] \(a\): /x: "),
        ({"tools": ["a"], "when": {"/x": {"range": [5, 1]}}}, r"rules\[1\] \(a\): /x: "),
        ({"tools": ["a"], "asked": "("}, r"rules\[1\] \(a\): asked: "),
        ({"tools": ["a"], "optional": ["/y"]}, r"rules\[1\] \(a\): optional: .*/y"),
    ],
)
def test_a_wrong_rule_is_named_at_the_start(rule: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        Tools([{"tools": ["fine"]}, rule])


POLICY: Any = [
    {"tools": ["send"], "effect": "deny", "when": {"/to/*": {"values": ["eve"]}}},
    {
        "tools": ["send"],
        "when": {"/to/*": {"pattern": "[a-z]+"}, "/n": {"range": [0, 9]}},
        "optional": ["/n"],
    },
]
MEMBERS = [
    *(
        '"to": ["ann"]',
        '"to":["ann","eve"]',
        '"to": "ann"',
        r'"to": ["\u0061nn"]',
        '"to": []',
        '"t\\u006f": 1',
    ),
    *('"n": 5', '"n": 50', '"n": null', '"text": "a, \\"b\\" }"', '"x": {"to": ["eve"]}', '"y": [1, {}, "'),
]
CALLS = st.lists(st.sampled_from(MEMBERS), max_size=4).map(lambda some: "{" + ", ".join(some) + "}")


@examples(60)
@given(st.lists(st.tuples(CALLS, st.integers(-3, 0), PLACES), min_size=1, max_size=3), st.booleans())
@SELDOM_IN_A_WORKER
async def test_it_is_the_same_wherever_calls_are_cut(calls: list[Any], ends_in_call: bool) -> None:
    texts = [text[: end or None] for text, end, _ in calls]
    guard = Tools(POLICY, text=TOLD, max_held=40)
    whole = await released(guard, *(("send", [text]) for text in texts), said="Hi")
    pieces = [("send", cut(text, places)) for text, (*_, places) in zip(texts, calls, strict=True)]
    parts = await released(guard, *pieces, said="Hi", ends_in_call=ends_in_call)
    for channel in ("content", "tool_call"):
        assert text_of(parts, channel) == text_of(whole, channel)
    assert finish_of(parts) == finish_of(whole)
    for text in texts:
        if text in text_of(whole, "tool_call") and text.endswith("}"):
            assert json.loads(text)["to"] == ["ann"]


KEYS = st.sampled_from(["a", "b", "é", '"'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@examples(60)
@given(st.dictionaries(KEYS, VALUES, max_size=3), PLACES, st.booleans())
def test_arguments_are_read_as_json_has_them(
    value: dict[str, Any], places: list[int], is_ascii: bool
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    arguments = Arguments({"a", "b"})
    for piece in cut(text, places):
        assert arguments.feed(piece) == len(piece)
    assert arguments.is_complete
    assert not arguments.is_bad
    wanted = {key: one for key, one in value.items() if key in ("a", "b")}
    assert arguments.members == json.loads(json.dumps(wanted), parse_int=Number, parse_float=Number)


def test_prompts_are_read_only_if_a_rule_asks_for_them() -> None:
    assert Tools([{"tools": ["a"], "when": {"/x": {"pattern": "a"}}}]).on_request is None
    assert Tools([{"tools": ["a"], "asked": "a"}]).on_request is not None


def test_other_channels_pass() -> None:
    assert play(Tools(), "Hello").content == "Hello"
    assert play(Tools(), stream_of("Hello", channel="reasoning")).reasoning == "Hello"


def test_conditions_are_checked_once_for_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[int] = []
    monkeypatch.setattr(Condition, "holds", lambda *_, **__: checked.append(1) or Truth.YES)
    guard = Tools([{"tools": ["call"], "when": {"/a": {}, "/b": {}}}])
    text = json.dumps({"a": "word " * 50, "x": "word " * 50, "b": 1})
    assert play(guard, stream_of(list(text), channel="tool_call", tool_name="call")).tool_calls
    assert len(checked) == 3


def test_the_example_withholds_what_the_stranger_wants(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[3] / "examples" / "guard_an_agent.py"))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        *("allowed", "allowed", "withheld", "withheld", "withheld")
    ]
