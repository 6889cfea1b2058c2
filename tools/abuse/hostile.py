"""Malformed, truncated and hostile bodies and raw requests, for every route."""

import copy
import gzip
import json
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from proxy.http.app import ENDPOINTS
from tools.abuse.server import BAD_KEY

_TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
_SCHEMA = {"name": "s", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
VALID: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2},
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "stream": True, "n": 2},
        {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "Be kind"}]},
                {"role": "assistant", "content": None, "tool_calls": [_CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ],
            "max_tokens": 2,
            "logprobs": True,
            "top_logprobs": 2,
            "stop": ["a", "b"],
            "logit_bias": {"5": 1},
            "metadata": {"a": "b"},
        },
        {
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 2,
            "response_format": {"type": "json_schema", "json_schema": _SCHEMA},
        },
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "tools": [_TOOL]},
    ],
    "/v1/completions": [
        {"prompt": "Hi", "max_tokens": 2, "echo": True, "logprobs": 1},
        {"prompt": [[5, 6], [7]], "max_tokens": 2, "stream": True},
    ],
    "/v1/responses": [
        {"input": "Hi", "max_output_tokens": 2, "stream": True},
        {"input": [{"role": "user", "content": "Hi"}], "max_output_tokens": 2, "instructions": "Be kind"},
        {"input": [{"type": "item_reference", "id": "x"}], "previous_response_id": "resp_1"},
    ],
    "/tokenize": [{"prompt": "Hi"}, {"messages": [{"role": "user", "content": "Hi"}]}],
    "/detokenize": [{"tokens": [5, 6, 7]}],
}
"""Bodies to start from. Each asks for few tokens."""
_MODELS: dict[str, type[BaseModel]] = {path: model for _, path, _, model, _ in ENDPOINTS if model}
_FIELDS = {path: sorted(_MODELS[path].model_fields) for path in VALID}

_NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**64), 10**400, 1e308, -0.0, 1e-320)
_NOT_FINITE = (float("nan"), float("inf"), float("-inf"))
_TEXTS = ("", "\x00", "\ud800", "\udfff\ud800", "ﷺ" * 50, "a" * 5000, "../../etc/passwd", "${jndi:ldap://x}")
_URLS = ("file:///etc/passwd", "http://127.0.0.1:1/", "data:image/png;base64,!!!!")
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((*_NUMBERS, *_NOT_FINITE)),
    st.sampled_from((*_TEXTS, *_URLS)),
    st.text(max_size=20),
)
_values = st.one_of(
    _leaves,
    st.recursive(
        _leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=8,
    ),
    st.integers(1, 300).map(lambda depth: _nested(depth)),
    st.integers(1, 3000).map(lambda num: [{}] * num),
)


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside `value` with every key or index that it has."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


@st.composite
def _edited(draw: st.DrawFn, path: str) -> dict[str, Any]:
    """A valid body with a few values replaced, taken out or added."""
    body: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(VALID[path])))
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(body))
        what = draw(st.sampled_from(("replace", "remove", "add")))
        if what == "add" or not places:
            body[draw(st.sampled_from(_FIELDS[path]))] = draw(_values)
            continue
        container, key = draw(st.sampled_from(places))
        if what == "replace":
            container[key] = draw(_values)
        else:
            del container[key]
    return body


@st.composite
def bodies(draw: st.DrawFn, path: str) -> bytes:
    """A body for `path`: as JSON, or JSON that is cut, damaged, packed or no JSON at all."""
    whole = json.dumps(draw(_edited(path))).encode()
    place = draw(st.integers(0, len(whole)))
    byte = draw(st.binary(min_size=1, max_size=3))
    damages = (whole, whole, whole, whole[:place], whole[:place] + byte + whole[place + 1 :], whole + whole)
    return draw(st.sampled_from((*damages, gzip.compress(whole), byte * 50)))


_KEY = f"Authorization: Bearer {BAD_KEY}"


@st.composite
def posts(draw: st.DrawFn) -> bytes:
    """A well-framed request with a hostile body."""
    path = draw(st.sampled_from(sorted(VALID)))
    body = draw(bodies(path))
    kind = draw(
        st.sampled_from(("application/json",) * 6 + ("text/plain", "application/json; charset=utf-7"))
    )
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        _KEY,
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


_METHODS = (
    *("GET", "POST") * 10,
    *("DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "", "G\0T", "A" * 9000),
)
_ROUTES = tuple(path.replace("{id}", "x") for _, path, *_ in ENDPOINTS)
_PATHS = (
    *_ROUTES * 3,
    *("", "*", "//", "http://elsewhere/v1/models", "/v1/models/../../etc/passwd", "/v1/models/%00"),
    *("/v1/responses/%ff%fe", "/v1/models/" + "a" * 9000, "/?" + "&" * 5000, "/health#x", "/%", "/ü"),
)
_VERSIONS = ("HTTP/1.1",) * 20 + ("HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "HTTP/1.1 ", "", "ICAP/1.0")
_HEADERS = (
    *("Host: 127.0.0.1", "Host: ", "Host: a\r\nHost: b", "Connection: close", "Connection: Upgrade"),
    *("Upgrade: websocket", "Upgrade: h2c", "Expect: 100-continue", "Expect: 200-ok"),
    *("Content-Type: application/json", "Content-Type: ;;;", "Content-Type: multipart/form-data"),
    *("Content-Length: 0", "Content-Length: -1", "Content-Length: +5", "Content-Length: 5, 6"),
    *("Content-Length: 99999999999999999999999", "Content-Length: 1e3", "Content-Length: 20"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked, chunked"),
    *("Content-Encoding: gzip", "Content-Encoding: br", "Authorization: Bearer", "Authorization: \xff\xfe"),
    *("Origin: http://elsewhere", "Sec-Fetch-Site: cross-site", "X-Forwarded-For: 1.2.3.4, x", "Cookie: ;="),
    *("Range: bytes=0-", "If-None-Match: *", "X" * 9000 + ": a", "a: " + "b" * 9000, ": empty", " folded"),
    *("no colon", "tab\t: x", "null: \0", "Accept-Encoding: gzip, br, zstd;q=x"),
)
_CHUNKS = (
    b"",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"-1\r\n",
    b"ffffffffffffffffff\r\n",
    b"5\r\nhe",
    b"x\r\n",
)


@st.composite
def raw_requests(draw: st.DrawFn) -> bytes:
    """Bytes that are nearly a request. They may be cut anywhere."""
    line = " ".join(draw(st.tuples(*map(st.sampled_from, (_METHODS, _PATHS, _VERSIONS)))))
    headers = draw(st.lists(st.sampled_from(_HEADERS), max_size=3))
    end = draw(st.sampled_from(("\r\n",) * 12 + ("\n", "\r", "")))
    head = (end.join((line, *headers, draw(st.sampled_from((_KEY, _KEY, "X: y"))))) + end * 2).encode(
        "utf-8", "replace"
    )
    body = draw(st.one_of(st.sampled_from(_CHUNKS), bodies("/v1/chat/completions"), st.binary(max_size=30)))
    whole: bytes = head + body
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


GRACE = 0.02
"""Seconds that a client that leaves waits for an answer."""


def answer_to(url: str, sent: bytes, *, ends: bool, timeout: float = 60.0) -> bytes:
    """All that the server answers to `sent` until it closes the connection.

    `ends`: say that nothing more will be sent. A server takes that as a client that left.

    Raises `TimeoutError` if the connection stands still for `timeout` seconds.
    """
    address = urlsplit(url)
    answer = b""
    with socket.create_connection((address.hostname, address.port), timeout=timeout) as sock:
        with suppress(ConnectionError):
            sock.sendall(sent)
            if ends:
                select.select([sock], [], [], GRACE)
                sock.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while piece := sock.recv(65536):
                answer += piece
    return answer


def error_in(answer: bytes, *, left: bool) -> str | None:
    """The server's fault in `answer`, if there is one. `left`: the client left before its end."""
    if not answer:
        return None
    words = answer.split(b"\r\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        return "no HTTP"
    if words[1].startswith(b"5"):
        return f"status {words[1].decode()}"
    if b'"server_error"' in answer or b'"guardrail_error"' in answer:
        return "an error of the server in a stream"
    if not left and b"text/event-stream" in answer and not answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
        return "a stream without its end"
    return None


_posted = posts().map(lambda sent: (sent, False))
_raw = raw_requests().map(lambda sent: (sent, True))
requests = st.one_of(_posted, _posted, _raw)
"""Pairs: what to send, and whether the client leaves after it."""


def send_many(url: str, num: int, *, derandomize: bool = False) -> None:
    """Send `num` of `requests`. Raises `AssertionError` or `TimeoutError` at an answer that is wrong."""

    @settings(
        max_examples=num,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(requests)
    def send(request: tuple[bytes, bool]) -> None:
        sent, leaves = request
        answer = answer_to(url, sent, ends=leaves)
        assert error_in(answer, left=leaves) is None, (error_in(answer, left=leaves), sent, answer)

    send()
