"""Hooks that read prompts, behind an upstream, in an echo and in a continued conversation."""

from engine.protocol import Delta, GenerationRequest
from engine.upstream.echo import EchoEngine
from engine.upstream.openai.engine import OpenAIEngine
from hooks import emit, prompt_texts, refuse, with_prompt_texts
from hooks.builtin.phrases import Phrases
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, COMPLETION, Serve

RESPONSE = {"model": "m", "input": "Hi"}
CHATS, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


class Reader(Script):
    """Refuses prompts that contain `hunter2`, with an answer if they contain `please`. Removes `bluebird`
    from prompts."""

    def __init__(self) -> None:
        super().__init__(lambda chunk: emit(chunk.pending))

    def on_request(self, request: GenerationRequest) -> object:
        texts = " ".join(text.text for text in prompt_texts(request))
        if "hunter2" in texts:
            return refuse("no_passwords", "I cannot." if "please" in texts else None)
        return with_prompt_texts(request, lambda text: text.text.replace("bluebird", "[name]"))


def engine() -> ScriptedEngine:
    return ScriptedEngine(lambda r: [d for i in range(r.num_outputs) for d in make_deltas("ok", index=i)])


async def test_a_refusal_is_counted(serve: Serve) -> None:
    client = await serve(engine(), Reader())
    await client.post(CHATS, {**CHAT, "messages": [{"role": "user", "content": "it is hunter2"}]})
    _, metrics = await client.get("/metrics")
    assert b'weir_hook_verdicts_total{action="refuse",hook="hook0"} 1.0' in metrics
    assert b'outcome="refused"} 1.0' in metrics


async def test_an_echo_repeats_the_rewritten_prompt(serve: Serve) -> None:
    client = await serve(EchoEngine(), Reader())
    asked = {**COMPLETION, "prompt": "say bluebird", "echo": True, "logprobs": 1, "max_tokens": 0}
    _, whole, _ = await client.post(COMPLETIONS, asked)
    (choice,) = whole["choices"]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"]) == "say [name]"
    assert "bluebird" not in str(whole)


async def test_an_upstream_gets_only_the_rewritten_prompt(serve: Serve) -> None:  # contract 8.1
    upstream = engine()
    back = await serve(upstream)
    front = await serve(OpenAIEngine(back.url), Reader(), names=[])
    body = {**CHAT, "messages": [{"role": "user", "content": "bluebird"}], "documents": ["bluebird"]}
    status, _, _ = await front.post(CHATS, body)
    assert (status, "bluebird" in repr(upstream.requests)) == (200, False)
    assert upstream.requests[0].extra["documents"] == ["[name]"]
    status, answer, _ = await front.post(COMPLETIONS, {**COMPLETION, "prompt_embeds": "AAAA"})
    assert (status, answer["error"]["param"]) == (400, "prompt_embeds")


async def test_hooks_read_a_continued_conversation_whole(serve: Serve) -> None:
    """The store keeps the caller's own text, so hooks read all of it each time."""
    asked = engine()
    client = await serve(asked, Reader())
    _, first, _ = await client.post(RESPONSES, {**RESPONSE, "input": "I am bluebird"})
    _, _, _ = await client.post(RESPONSES, {**RESPONSE, "previous_response_id": first["id"]})
    assert [m["content"] for m in asked.requests[-1].messages] == ["I am [name]", "ok", "Hi"]
    _, refused, _ = await client.post(RESPONSES, {**RESPONSE, "input": "hunter2, please"})
    assert refused["incomplete_details"] == {"reason": "content_filter"}
    on = {**RESPONSE, "previous_response_id": refused["id"], "stream": False}
    _, again, _ = await client.post(RESPONSES, on)
    assert (again["output"][0]["content"][0]["text"], len(asked.requests)) == ("I cannot.", 2)


async def test_a_hook_of_prompts_does_not_see_the_answer_as_a_prompt(serve: Serve) -> None:
    """A hook of prompts leaves answers unchanged, and a hook of answers leaves prompts unchanged."""
    said = ScriptedEngine(lambda r: [*make_deltas(["bluebird"], finish=False), Delta(finish_reason="stop")])
    client = await serve(said, Reader(), Phrases(["heron"]))
    body = {**CHAT, "messages": [{"role": "user", "content": "heron"}]}
    _, whole, _ = await client.post(CHATS, body)
    assert whole["choices"][0]["message"]["content"] == "bluebird"
    assert said.requests[0].messages[0]["content"] == "heron"
