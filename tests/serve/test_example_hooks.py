"""The example hooks in front of the model that ships."""

from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from openai import OpenAI

from tests.serve.test_client_leaves import metric

SECRET = "What is the secret project called?"
EMAIL = "What is your e-mail address?"


def ask(url: str, question: str, *, system: str | None = None, **more: Any) -> tuple[str, Any, str]:
    """(text, last chunk's choice, everything that was received, as text)."""
    messages: list[Any] = [{"role": "user", "content": question}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    with OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        chunks = list(
            client.chat.completions.create(
                model="weir-demo",
                messages=messages,
                temperature=0,
                stream=True,
                logprobs=True,
                top_logprobs=0,
                extra_body={"return_token_ids": True},
                **more,
            )
        )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    return text, chunks[-1].choices[0], " ".join(chunk.model_dump_json() for chunk in chunks)


async def until_idle(url: str) -> None:
    """Wait until the engine runs no request."""
    async with aiohttp.ClientSession() as http:
        while await metric(http, url, "weir_num_requests_running"):
            pass


def test_the_model_says_what_the_guards_are_for(weir_serve: Callable[..., str]) -> None:
    url = weir_serve()
    assert "Project Bluebird" in ask(url, SECRET)[0]
    assert "@" in ask(url, EMAIL)[0]


async def test_a_banned_phrase_ends_the_stream_before_it_is_said(weir_serve: Callable[..., str]) -> None:
    url = weir_serve("--hook", "examples/banned_phrase.py:BannedPhrase")
    text, last, received = ask(url, SECRET)
    assert text
    assert "project" not in text.lower().split("secret project")[-1]
    assert (last.finish_reason, last.stop_reason) == ("content_filter", "banned_phrase")
    assert "bluebird" not in received.lower()
    await until_idle(url)
    assert ask(url, "Hello!")[1].finish_reason == "stop"


WHO = "Who are you?"
IN_OTHER_WORDS = "I am Wren, the assistant of Millrace & Co. I am a small program, and I am happy to help."


@pytest.mark.parametrize("more", [(), ("--hook-workers", "1")])
async def test_an_answer_goes_on_in_other_words(
    weir_serve: Callable[..., str], more: tuple[str, ...]
) -> None:
    """The model says to the end the text that a guard that terminates would have cut off."""
    assert "a small computer program, and" in ask(weir_serve(), WHO)[0]
    url = weir_serve("--hook", "examples/say_otherwise.py:SayOtherwise", *more)
    text, last, received = ask(url, WHO)
    assert text == IN_OTHER_WORDS
    assert (last.finish_reason, getattr(last, "stop_reason", None)) == ("stop", None)
    assert "computer" not in received.lower()
    await until_idle(url)
    async with aiohttp.ClientSession() as http:
        asked = {"messages": [{"role": "user", "content": WHO}], "temperature": 0, "logprobs": True}
        async with http.post(url + "/v1/chat/completions", json=asked) as response:
            answer = await response.json()
        async with http.get(url + "/metrics") as response:
            metrics = await response.text()
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")
    assert "".join(token["token"] for token in choice["logprobs"]["content"]).startswith(text)
    assert answer["usage"]["completion_tokens"] > len(choice["logprobs"]["content"])
    assert 'action="rewind"' in metrics


async def test_a_stop_reason_names_no_text_to_who_is_guarded(weir_serve: Callable[..., str]) -> None:
    """Contract 2.7, 6.2: of its stops, a client would learn which one the model was about to say."""
    plain, guarded = weir_serve(), weir_serve("--hook", "examples/banned_phrase.py:BannedPhrase")
    async with aiohttp.ClientSession() as http:

        async def post(url: str, body: dict[str, Any]) -> Any:
            async with http.post(url, json=body) as response:
                return await response.json()

        ids = (await post(plain + "/tokenize", {"prompt": " Bluebird"}))["tokens"]
        for stops in ({"stop": ["Bluebird"]}, {"stop_token_ids": ids}):
            asked = {"messages": [{"role": "user", "content": SECRET}], "temperature": 0, **stops}
            for url, told in (
                (plain, [reason for some in stops.values() for reason in some]),
                (guarded, [None]),
            ):
                (choice,) = (await post(url + "/v1/chat/completions", asked))["choices"]
                assert choice["finish_reason"] == "stop"
                assert choice["stop_reason"] in told


def test_an_email_address_is_redacted_on_every_channel(weir_serve: Callable[..., str]) -> None:
    plain = ask(weir_serve(), EMAIL)[0]
    text, last, received = ask(weir_serve("--hook", "examples/redact_email.py:RedactEmail"), EMAIL)
    assert "[e-mail]" in text
    assert "@" not in received
    before, _, after = text.partition("[e-mail]")
    assert plain.startswith(before)
    assert plain.endswith(after)
    assert last.finish_reason == "stop"


@pytest.mark.parametrize("question", ["Hello!", SECRET])
def test_upper_case_rewrites_everything(weir_serve: Callable[..., str], question: str) -> None:
    plain = ask(weir_serve(), question)[0]
    text, _, _ = ask(weir_serve("--hook", "examples/upper_case.py:UpperCase"), question)
    assert text == plain.upper()
