"""Images, sounds and files of a prompt, as hooks see them, and the guard that refuses them."""

import base64
import hashlib
from typing import Any

import pytest

from hooks import PromptMedium, Refusal, prompt_media
from hooks.builtin.media import Media
from tests.helpers import make_request

DATA = b"\x89PNG bytes"
BASE64 = base64.b64encode(DATA).decode()
HASH = hashlib.sha256(DATA).hexdigest()
PLACE = "messages[0].content[1]"


@pytest.fixture(autouse=True)
def mode() -> str:
    return "no hooks"


def request_with(*parts: Any) -> Any:
    return make_request(messages=({"role": "user", "content": [{"type": "text", "text": "See"}, *parts]},))


@pytest.mark.parametrize(
    ("part", "medium"),
    [
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BASE64}"}},
            PromptMedium("image", PLACE, "image/png", len(DATA), HASH, None),
        ),
        (
            {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
            PromptMedium("image", PLACE, None, None, None, "https://a.example/b.png"),
        ),
        (
            {"type": "image_url", "image_url": "data:,%89PNG%20bytes"},
            PromptMedium("image", PLACE, None, len(DATA), HASH, None),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}},
            PromptMedium("audio", PLACE, "wav", len(DATA), HASH, None),
        ),
        (
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{BASE64}", "filename": "a"}},
            PromptMedium("file", PLACE, "application/pdf", len(DATA), HASH, None),
        ),
        (
            {"type": "file", "file": {"file_id": "file-1"}},
            PromptMedium("file", PLACE, None, None, None, "file-1"),
        ),
        (
            {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,!"}},
            PromptMedium("video", PLACE, "video/mp4", None, None, None),
        ),
        ({"type": "audio_url", "audio_url": {}}, PromptMedium("audio", PLACE, None, None, None, None)),
        (
            {"type": "image_url", "image_url": {"url": f"DATA:image/png;base64,{BASE64}"}},
            PromptMedium("image", PLACE, "image/png", len(DATA), HASH, None),
        ),
        (
            {"type": "input_audio", "input_audio": {"url": "aGk=", "data": BASE64}},
            PromptMedium("audio", PLACE, None, None, None, None),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": [BASE64]}},
            PromptMedium("audio", PLACE, None, None, None, None),
        ),
        (
            {"type": "file", "file": {"file_data": "https://a.example/b.pdf"}},
            PromptMedium("file", PLACE, None, None, None, "https://a.example/b.pdf"),
        ),
        (
            {"type": "image_embeds", "image_embeds": BASE64},
            PromptMedium("image", PLACE, None, len(DATA), HASH, None),
        ),
        (
            {"type": "image_url", "image_url": None, "uuid": "kept"},
            PromptMedium("image", PLACE, None, None, None, None),
        ),
    ],
)
def test_a_hook_sees_type_size_hash_and_place(part: Any, medium: PromptMedium) -> None:
    assert prompt_media(request_with(part)) == [medium]


def test_a_prompt_of_text_has_none() -> None:
    assert prompt_media(make_request()) == []
    assert prompt_media(request_with("text", {"type": "text", "text": "data:image/png;base64,aGk="})) == []


def test_fields_that_an_upstream_may_read_as_messages_have_media_too() -> None:
    messages = [{"role": "user", "content": [{"image_url": {"url": f"data:image/png;base64,{BASE64}"}}]}]
    request = make_request(extra={"messages": messages, "prediction": {"content": "text"}})
    place = "extra.messages[0].content[0]"
    assert prompt_media(request) == [PromptMedium("image", place, "image/png", len(DATA), HASH, None)]


def test_a_schema_with_a_property_of_that_name_is_no_medium() -> None:
    schema = {"type": "object", "properties": {"file": {"type": "string"}}}
    assert prompt_media(make_request(extra={"response_format": {"json_schema": schema}})) == []


IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BASE64}"}}
ADDRESS = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}


@pytest.mark.parametrize(
    ("arguments", "part", "reason"),
    [
        ({}, IMAGE, "media_image"),
        ({}, ADDRESS, "media_image"),
        ({"allow": ["audio"]}, IMAGE, "media_image"),
        ({"allow": ["image"]}, IMAGE, None),
        ({"allow": ["image"]}, ADDRESS, "media_address"),
        ({"allow": ["image"], "addresses": True}, ADDRESS, None),
        ({"allow": ["image"], "addresses": True}, {"image_url": "data:;base64,!"}, "media_address"),
        ({"allow": ["image"], "max_bytes": len(DATA)}, IMAGE, None),
        ({"allow": ["image"], "max_bytes": len(DATA) - 1}, IMAGE, "media_size"),
    ],
)
def test_the_guard_refuses_what_is_not_allowed(arguments: Any, part: Any, reason: str | None) -> None:
    request = request_with(part)
    answer = Media(**arguments).on_request(request)
    if reason is None:
        assert answer is request
    else:
        assert answer == Refusal(reason)


def test_the_guard_lets_text_pass() -> None:
    request = make_request()
    assert Media().on_request(request) is request
