"""`POST /v1/completions`: the shapes that clients and evaluation harnesses rely on."""

from typing import Any

from engine.protocol import Delta, Token, TopLogprob
from hooks import Chunk, emit, redact
from hooks.prompts.texts import prompt_texts
from tests.helpers import Script, ScriptedEngine, make_deltas, make_token, pipeline_of
from tests.proxy.conftest import COMPLETION, Serve

PATH = "/v1/completions"


def hello(request: Any) -> list[Delta]:
    return make_deltas(["Hel", "lo"])


def echoing(request: Any) -> list[Delta]:
    prompt = (Token(1, "The", b"The"), Token(2, " sky", b" sky", -3.0, (TopLogprob(5, b" sea", -1.0),)))
    return [
        Delta(text="The sky", tokens=prompt, channel="echo", prompt_token_ids=(1, 2)),
        Delta(text=" is", tokens=(make_token(" is", 3),)),
        Delta(text=" blue", tokens=(make_token(" blue", 4),)),
        Delta(finish_reason="length"),
    ]


async def test_a_whole_answer_has_every_field(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    status, body, _ = await client.post(PATH, COMPLETION)
    assert status == 200
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]


async def test_a_stream_has_text_and_one_finish_reason(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    stream = await client.stream(PATH, COMPLETION)
    choices = [choice for chunk in stream.chunks for choice in chunk["choices"]]
    assert [(c["text"], c["finish_reason"]) for c in choices] == [("Hel", None), ("lo", None), ("", "stop")]
    assert stream.events[-1] == (None, "[DONE]")


async def test_prompts_of_every_kind_reach_the_engine(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [Delta(index=i, finish_reason="stop") for i in range(r.num_outputs)])
    client = await serve(engine)
    for prompt in ("a", ["a", "b"], [1, 2], [[1, 2], [3]]):
        status, body, _ = await client.post(PATH, {"model": "m", "prompt": prompt, "n": 2})
        assert status == 200
        assert [c["index"] for c in body["choices"]] == list(range(engine.requests[-1].num_outputs))
    assert [r.prompts for r in engine.requests] == [("a",), ("a", "b"), ((1, 2),), ((1, 2), (3,))]
    assert engine.requests[0].sampling.max_tokens == 16


async def test_echo_begins_with_the_prompt_and_its_offsets_are_right(serve: Serve) -> None:
    client = await serve(ScriptedEngine(echoing))
    _, body, _ = await client.post(PATH, {**COMPLETION, "echo": True, "logprobs": 1})
    (choice,) = body["choices"]
    assert choice["text"] == "The sky is blue"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["The", " sky", " is", " blue"]
    assert logprobs["token_logprobs"] == [None, -3.0, -0.25, -0.25]
    assert logprobs["top_logprobs"][:2] == [None, {" sea": -1.0, " sky": -3.0}]
    assert logprobs["text_offset"] == [0, 3, 7, 10]


async def test_zero_logprobs_give_only_the_chosen_token(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    _, body, _ = await client.post(PATH, {**COMPLETION, "logprobs": 0})
    assert body["choices"][0]["logprobs"]["top_logprobs"] == [{"Hel": -0.25}, {"lo": -0.25}]


async def test_offsets_count_the_released_text(serve: Serve) -> None:  # contract 3.7
    hook = Script(
        lambda c: redact([(0, 3, "##########")]) if c.pending.startswith("Hel") else emit(c.pending)
    )
    client = await serve(ScriptedEngine(hello), hook)
    for body in (await _whole(client), await _streamed(client)):
        assert body["text"] == "##########lo"
        assert body["logprobs"]["tokens"] == ["lo"]
        assert body["logprobs"]["text_offset"] == [10]


async def test_offsets_of_kept_tokens_count_the_released_text(serve: Serve) -> None:  # contract 3.7
    """A rewrite makes text three times as long, and the next a third as long: offsets in the tokens' own
    texts would differ."""
    hook = Script(lambda c: emit(c.pending * 3 if c.text == "Hel" else c.pending[:1]))
    pipeline = pipeline_of(hook, rewritten_tokens="keep")
    client = await serve(ScriptedEngine(lambda r: make_deltas(["Hel", "lo ", "you"])), pipeline=pipeline)
    _, whole, _ = await client.post(PATH, {**COMPLETION, "logprobs": 0})
    (choice,) = whole["choices"]
    assert choice["text"] == "HelHelHelly"
    assert choice["logprobs"]["tokens"] == ["Hel", "lo ", "you"]
    assert choice["logprobs"]["text_offset"] == [0, 9, 10]
    stream = await client.stream(PATH, {**COMPLETION, "logprobs": 0})
    logprobs = [c["logprobs"] for chunk in stream.chunks for c in chunk["choices"] if c["logprobs"]]
    assert [offset for part in logprobs for offset in part["text_offset"]] == [0, 9, 10]


async def _whole(client: Any) -> dict[str, Any]:
    _, body, _ = await client.post(PATH, {**COMPLETION, "logprobs": 0})
    return dict(body["choices"][0])


async def _streamed(client: Any) -> dict[str, Any]:
    stream = await client.stream(PATH, {**COMPLETION, "logprobs": 0})
    choices = [choice for chunk in stream.chunks for choice in chunk["choices"]]
    (logprobs,) = [c["logprobs"] for c in choices if c["logprobs"]]
    return {"text": "".join(c["text"] for c in choices), "logprobs": logprobs}


async def test_token_ids_include_the_prompts_ids_once(serve: Serve) -> None:
    client = await serve(ScriptedEngine(echoing))
    asked = {**COMPLETION, "echo": True, "return_token_ids": True}
    stream = await client.stream(PATH, asked)
    choices = [choice for chunk in stream.chunks for choice in chunk["choices"]]
    assert [c.get("prompt_token_ids") for c in choices] == [[1, 2], None, None, None]
    assert [c["token_ids"] for c in choices] == [[], [3], [4], []]


async def test_without_detokenizing_ids_replace_the_text_and_are_vetted_too(
    serve: Serve,
) -> None:  # contract 5.2
    def no_lo(chunk: Chunk) -> Any:
        return emit(chunk.pending.replace("lo", "**"))

    hook = Script(no_lo)
    client = await serve(ScriptedEngine(hello), hook)
    _, body, _ = await client.post(PATH, {**COMPLETION, "detokenize": False, "logprobs": 1})
    (choice,) = body["choices"]
    assert (choice["text"], choice["token_ids"], choice["logprobs"]["tokens"]) == ("", [0], ["Hel"])
    assert "".join(c.text_diff for c in hook.chunks).endswith("Hello")


async def test_the_echo_is_vetted(serve: Serve) -> None:  # contract 5.3
    hook = Script(lambda c: emit(c.pending.replace("sky", "***")) if c.channel == "echo" else emit(c.pending))
    client = await serve(ScriptedEngine(echoing), hook)
    asked = {**COMPLETION, "echo": True, "logprobs": 1, "return_token_ids": True}
    status, body, _ = await client.post(PATH, asked)
    assert status == 200
    assert body["choices"][0]["text"] == "The *** is blue"
    assert "sky" not in str(body)
    assert "prompt_token_ids" not in body["choices"][0]


async def test_best_of_reaches_the_engine_and_cannot_be_streamed(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [Delta(index=i, finish_reason="stop") for i in range(r.num_outputs)])
    client = await serve(engine)
    status, body, _ = await client.post(PATH, {**COMPLETION, "n": 2, "best_of": 5})
    assert (status, len(body["choices"])) == (200, 2)
    (request,) = engine.requests
    assert (request.sampling.best_of, request.num_outputs, request.num_candidates) == (5, 2, 5)
    for more in ({"best_of": 2, "stream": True}, {"n": 3, "best_of": 2}, {"n": 0}):
        status, body, _ = await client.post(PATH, {**COMPLETION, **more})
        assert (status, body["error"]["param"] in more) == (400, True)
    assert (await client.post(PATH, {**COMPLETION, "prompt": ["a"] * 100, "best_of": 50}))[0] == 400
    assert (await client.stream(PATH, {**COMPLETION, "n": 2, "best_of": 2})).status == 200


async def test_a_suffix_reaches_the_engine_and_hooks_on_prompts(serve: Serve) -> None:  # contract 2.8, 8.1
    class Reader(Script):
        def on_request(self, request: Any) -> Any:
            self.seen = prompt_texts(request)
            return request

    hook = Reader(lambda chunk: emit(chunk.pending))
    engine = ScriptedEngine(hello)
    client = await serve(engine, hook)
    hook.chunks.clear()  # the self-test's
    status, _, _ = await client.post(PATH, {**COMPLETION, "prompt": "before", "suffix": "behind"})
    assert status == 200
    assert {"before", "behind"} <= {text.text for text in hook.seen}
    assert engine.requests[0].extra["suffix"] == "behind"
    assert {chunk.lead for chunk in hook.chunks} == {"before"}
