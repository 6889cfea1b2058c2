"""One case of a clause: an endpoint, a mode, an engine's script, hooks, and what the client gets.

Whatever a client gets in these tests, as well as the log and the metrics, is searched for the texts that the
test withholds (contract 6.2).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import orjson
import pytest

from engine.protocol import Channel, Delta, FinishReason, ToolCall, Usage
from hooks.loading.loader import HookSpec
from hooks.loading.options import PipelineOptions
from hooks.pipeline.pipeline import Pipeline
from proxy.wire.answer_decisions import DECISION, FIELD, HELD
from tests.contract.wire import CLOSE, ENDPOINTS, OPEN, Answer, Endpoint, strings
from tests.helpers import ScriptedEngine, make_token
from tests.proxy.conftest import Client, Events, Serve, read_events

NUM_PROMPT_TOKENS = 7


def said(
    channel: Channel, *pieces: str, first_id: int = 100, index: int = 0, call: int = 0, name: str = "f"
) -> list[Delta]:
    """One token a piece, one piece a delta. On the channel `tool_call`, the pieces are a text in a call's
    arguments, which have a token in front and one behind."""
    tool_call = None
    if channel == "tool_call":
        tool_call = ToolCall(call, name, "upstreams-own")
        pieces = (OPEN, *pieces, CLOSE)
    return [
        Delta(
            index=index,
            text=piece,
            tokens=(make_token(piece, first_id + i),),
            channel=channel,
            tool_call=tool_call,
        )
        for i, piece in enumerate(pieces)
    ]


def counted(deltas: Iterable[Delta]) -> list[Delta]:
    """The deltas, each with the usage so far."""
    num_tokens, result = 0, []
    for delta in deltas:
        num_tokens += len(delta.tokens) if delta.channel != "echo" else 0
        result.append(replace(delta, usage=Usage(NUM_PROMPT_TOKENS, num_tokens)))
    return result


def engine_of(script: Iterable[Any]) -> ScriptedEngine:
    """An engine that says this, whatever it is asked."""
    items = list(script)
    deltas = iter(counted(item for item in items if isinstance(item, Delta)))
    items = [next(deltas) if isinstance(item, Delta) else item for item in items]
    return ScriptedEngine(lambda request: items)


def end(finish_reason: FinishReason = "stop", stop_reason: Any = None, index: int = 0) -> Delta:
    return Delta(finish_reason=finish_reason, stop_reason=stop_reason, index=index)


SECRET = ("zeb", "ra7")
"""The tokens of a word that guards look for."""


def well(channel: Channel) -> list[Delta]:
    """An answer with that word."""
    finish: FinishReason = "tool_calls" if channel == "tool_call" else "stop"
    return [*said(channel, "well ", *SECRET, " more"), end(finish)]


def guard(name: str, *, mode: Any = "enforce", **args: Any) -> HookSpec:
    """The hook of this name in `tests.contract.guards`."""
    return HookSpec(f"tests.contract.guards:{name}", args, mode, name=name)


@dataclass
class Case:
    """One endpoint, streaming or not."""

    endpoint: Endpoint
    streams: bool
    serve: Serve
    caplog: pytest.LogCaptureFixture
    withheld: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    """One for each server that the test started."""
    hooks: list[Any] = field(default_factory=list)
    """The instances of the hooks of the last server."""
    engine: Any = None

    async def start(
        self, engine: Any, *specs: HookSpec, allowed: Iterable[HookSpec] = (), **settings: Any
    ) -> Client:
        """A server with these hooks."""
        options = {name: settings.pop(name) for name in [*settings] if name in PipelineOptions.model_fields}
        engine = engine if hasattr(engine, "generate") else engine_of(engine)
        pipeline = await Pipeline.load(specs, allowed, PipelineOptions(**options))
        self.engine = engine
        self.hooks = [getattr(hook.call, "__self__", hook.call) for hook in pipeline.hooks]
        self.tallies = pipeline.tallies
        self.clients.append(await self.serve(engine, pipeline=pipeline, **settings))
        return self.clients[-1]

    def body(self, prompt: str = "Hi", lead: str | None = None, **fields: Any) -> dict[str, Any]:
        fields = self.endpoint.renamed({"tools": self.endpoint.tools("f", "g"), **fields})
        if not self.endpoint.can("tool_call"):
            del fields["tools"]
        more = self.endpoint.stream_fields() if self.streams else {}
        return self.endpoint.asks(prompt, lead, **more, **fields, stream=self.streams)

    async def ask(
        self,
        client: Client,
        prompt: str = "Hi",
        lead: str | None = None,
        *,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> Answer:
        """The answer of a server."""
        body = self.body(prompt, lead, **fields)
        url = client.url + self.endpoint.path
        async with client.http.post(url, json=body, headers=headers) as response:
            answer = Answer(response.status, response.headers, await response.read())
        self.read(answer)
        self.answers.append(answer)
        return answer

    async def answer(self, engine: Any, *specs: HookSpec, **fields: Any) -> Answer:
        """The answer of a server of its own. `engine`: one, or the deltas that it says."""
        if not hasattr(engine, "generate"):
            is_echo = any(isinstance(one, Delta) and one.channel == "echo" for one in engine)
            fields = {"echo": True, **fields} if is_echo else fields
        settings = {name: fields.pop(name) for name in [*fields] if name in SETTINGS}
        return await self.ask(await self.start(engine, *specs, **settings), **fields)

    def read(self, answer: Answer) -> None:
        if answer.status != 200:
            answer.error = self.endpoint.failure(answer.status, self.read_whole(answer))
        elif self.streams:
            assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            events, comments = read_events(answer.raw)
            answer.told = [(name, data) for name, data in events if name in (DECISION, HELD)]
            events = [(name, data) for name, data in events if name not in (DECISION, HELD)]
            stream = Events(200, answer.headers, events, comments)
            done = [data for _, data in stream.events].count("[DONE]")
            assert done == self.endpoint.can("done")
            assert [name for name, _ in stream.events].count("error") <= 1
            answer.outputs, answer.usage, answer.error = self.endpoint.streamed(stream)
        else:
            answer.outputs, answer.usage = self.endpoint.whole(self.read_whole(answer))

    def read_whole(self, answer: Answer) -> Any:
        """The JSON of an answer that is no stream, without the decisions."""
        body = orjson.loads(answer.raw)
        answer.told = [(DECISION, one) for one in body.pop(FIELD, ())]
        return body

    def ended(self, channel: Channel, text: str) -> str:
        """The text, if a client gets a channel's text that a hook ended: a call is then no call (3.20)."""
        return text if channel != "tool_call" else ""

    def cut(self, channel: Channel, text: str) -> str:
        """The text, if a client gets a channel's text that is cut by a length."""
        return text if channel != "tool_call" or self.endpoint.can("cut_call") else ""

    def withholds(self, *texts: str) -> None:
        """These texts must be nowhere, whole or in part: neither in an answer, nor in the log, nor in the
        metrics."""
        self.withheld |= set(texts)

    async def check_withheld(self) -> None:
        services = [client.server.service for client in self.clients if self.withheld]
        metrics = [(await service.render_metrics()).decode() for service in services]
        for text in self.withheld:
            for answer in self.answers:
                assert not shows(answer, text), f"{text} reached the client"
            assert text not in self.caplog.text, f"{text} reached the log"
            assert not any(text in page for page in metrics), f"{text} reached the metrics"


SETTINGS = {*PipelineOptions.model_fields, "allowed", "reasoning_parser", "tool_call_parser", "hook_workers"}


def shows(answer: Answer, text: str) -> bool:
    """Whether the text is in the answer: in its bytes, in a value or a key, as a list of bytes, in a header,
    or in the text that the parts of a stream make."""
    if text.encode() in answer.raw or text in str(answer.headers):
        return True
    if "text/event-stream" in answer.headers.get("Content-Type", ""):
        values: Any = [data for _, data in read_events(answer.raw)[0]]
    else:
        values = orjson.loads(answer.raw)
    joined = [
        one
        for output in answer.outputs
        for one in (output.content, output.reasoning, *map(str, output.calls))
    ]
    return any(text in one for one in (*strings(values), *joined))


Test = TypeVar("Test", bound=Callable[..., Any])


def everywhere(*features: str) -> Callable[[Test], Test]:
    """Every endpoint that has these features, streaming and not. Beside other parameters it is sampled."""
    cases = [(one, streams) for one in ENDPOINTS if one.can(*features) for streams in (False, True)]
    ids = [_name(*one) for one in cases]
    return _sampled(pytest.mark.parametrize("case", cases, indirect=True, ids=ids))


def every_channel(*features: str, without: str = "") -> Callable[[Test], Test]:
    """The same, with every channel that the endpoint has. `without`: a channel that is left out."""
    cases = [
        ((one, streams), channel)
        for one in ENDPOINTS
        if one.can(*features)
        for channel in CHANNELS
        if one.can(channel) and channel != without
        for streams in (False, True)
    ]
    ids = [f"{_name(*one)}-{channel}" for one, channel in cases]
    return _sampled(pytest.mark.parametrize(("case", "channel"), cases, indirect=["case"], ids=ids))


def _sampled(cases: pytest.MarkDecorator) -> Callable[[Test], Test]:
    return lambda test: pytest.mark.sampled(cases(test))


CHANNELS: tuple[Channel, ...] = ("content", "reasoning", "tool_call", "echo")


def _name(endpoint: Endpoint, streams: bool) -> str:
    return f"{endpoint.name}-{'stream' if streams else 'whole'}"
