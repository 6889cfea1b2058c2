"""What each endpoint has words for, and that these tests find withheld text wherever it is."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import orjson
import pytest

from engine.upstream.echo import EchoEngine
from hooks.loading.loader import HookSpec
from tests.contract.case import Case, end, guard, said, shows
from tests.contract.wire import ENDPOINTS, Answer, Feature, Output


class Probe(NamedTuple):
    """Asks for a feature, and looks for it in the answer."""

    script: Iterable[Any] | Callable[[], Any]
    is_there: Callable[[Answer, Case], bool]
    fields: Mapping[str, Any] = MappingProxyType({})
    hook: HookSpec | None = None


CALL = said("tool_call", "x")
PROBES: dict[Feature, Probe] = {
    "reasoning": Probe([*said("reasoning", "why"), end()], lambda a, c: a.only.reasoning == "why"),
    "tool_call": Probe([*CALL, end("tool_calls")], lambda a, c: a.only.calls == [("f", '{"a":"x"}')]),
    "echo": Probe(EchoEngine, lambda a, c: a.only.content == "HiHi", {"echo": True, "lead": "Hi"}),
    "logprobs": Probe([*said("content", "a"), end()], lambda a, c: a.only.tokens == ["a"]),
    "token_ids": Probe([*said("content", "a"), end()], lambda a, c: a.only.ids == [100]),
    "prompt_logprobs": Probe(
        [*said("echo", "why"), end()],
        lambda a, c: b"decoded_token" in a.raw,
        {"prompt_logprobs": 1, "echo": False},
    ),
    "outputs": Probe([end(), end(index=1)], lambda a, c: len(a.outputs) == 2, fields={"n": 2}),
    "prompt_ids": Probe([end()], lambda a, c: a.status == 200, fields={"prompt": [1, 2]}),
    "error_code": Probe(
        [], lambda a, c: bool(a.error and a.error.code), {"prompt": "hunter2"}, guard("Reads")
    ),
    "cut_call": Probe([*CALL[:-1], end("length")], lambda a, c: len(a.only.calls) == 1),
    "finish_tool_calls": Probe(
        [*CALL, end("tool_calls")], lambda a, c: bool(a.only.calls) and a.only.finish == "tool_calls"
    ),
    "stop_token": Probe([end("stop", 9)], lambda a, c: a.only.reason == 9, fields={"stop_token_ids": [9]}),
    "metadata": Probe(
        [end()], lambda a, c: c.engine.requests[0].metadata == {"a": "b"}, {"metadata": {"a": "b"}}
    ),
    "done": Probe([end()], lambda a, c: a.raw.endswith(b"data: [DONE]\n\n")),
}


ONLY_WHOLE = ("prompt_logprobs",)
CASES = [((one, feature not in ONLY_WHOLE), feature) for one in ENDPOINTS for feature in get_args(Feature)]


@pytest.mark.parametrize(
    ("case", "feature"), CASES, indirect=["case"], ids=[f"{one}-{feature}" for (one, _), feature in CASES]
)
async def test_an_endpoint_has_all_features_but_those_that_are_named(case: Case, feature: Feature) -> None:
    """Otherwise a test could leave out a combination that the endpoint has."""
    script, is_there, fields, hook = PROBES[feature]
    hooks = () if hook is None else (hook,)
    answer = await case.answer(script() if callable(script) else script, *hooks, **fields)
    assert is_there(answer, case) == case.endpoint.can(feature)


EVENTS = {"Content-Type": "text/event-stream; charset=utf-8"}


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, {"X-Request-Id": "zebra7"}, b"{}"),
        Answer(200, {}, b'{"id":"a zebra7"}'),
        Answer(200, {}, b'{"zebra7":1}'),
        Answer(200, {}, rb'{"id":"zebr\u00617"}'),
        Answer(200, {}, orjson.dumps({"bytes": list(b"zebra7")})),
        Answer(200, EVENTS, b'data: {"text":"' + rb"zebr\u00617" + b'"}\n\n'),
        Answer(200, EVENTS, b": zebra7\n\n"),
        Answer(200, EVENTS, b"", [Output(content="zebra7")]),
        Answer(200, EVENTS, b"", [Output(reasoning="zebra7")]),
        Answer(200, EVENTS, b"", [Output(calls=[("f", '{"a":"zebra7"}')])]),
    ],
    ids=str,
)
def test_withheld_text_is_found_wherever_it_is(answer: Answer) -> None:
    answer.raw = answer.raw or b": \n\n"
    assert shows(answer, "zebra7")
    assert not shows(answer, "zebra8")
