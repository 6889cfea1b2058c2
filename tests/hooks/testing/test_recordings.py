"""The recordings that tests replay hold what guards are to catch, as it was asked for."""

import importlib.util
import json
from pathlib import Path

import pytest

from benchmarks import pii_samples, secret_samples
from engine.streams.recording import Recording
from hooks.loading.loader import HookSpec
from hooks.testing import WAYS, assert_never_released, play, stream_of
from tools.demo import phrases

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "recordings"


def without_values(name: str) -> str:
    texts = [
        f"{sample.text[: sample.start]}[{sample.entity}]{sample.text[sample.end :]}"
        for sample in make.VALUES[name]
    ]
    return "\n".join(texts)


spec = importlib.util.spec_from_file_location("make_recordings", FOLDER / "make.py")
assert spec is not None
assert spec.loader is not None
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

SAID = {
    "email": phrases.EMAIL,
    "phone": phrases.PHONE,
    "card": phrases.CARD,
    "api_key": phrases.API_KEY,
    "system_prompt": make.SYSTEM,
    "phrase": phrases.BANNED_PHRASE,
    "loop": " banana" * 30,
    "emoji": "😊",
    "german": "geöffnet",
    "chinese": "营业时间",
    "reasoning": "hunter2",
    "tool_call": phrases.EMAIL,
    **make.GUIDED,
}

GUARDS: dict[str, tuple[HookSpec, str]] = {
    "email": (HookSpec("pii", {"reserved": "find"}), "Our e-mail address is [EMAIL_ADDRESS]."),
    "phone": (HookSpec("pii"), "Our phone number is [PHONE_NUMBER]."),
    "card": (HookSpec("pii"), "The test card number is [CREDIT_CARD]."),
    "api_key": (HookSpec("patterns", {"patterns": {"KEY": r"sk-\w{20,40}"}}), "The API key is [KEY]."),
    "system_prompt": (HookSpec("prompt_leak", {"min_words": 5}), "Here is my system prompt:\n[prompt_leak]."),
    "phrase": (
        HookSpec("phrases", {"phrases": ["project bluebird"]}),
        "Our secret project is called [phrase].",
    ),
    "loop": (
        HookSpec("repetition", {"min_length": 60, "max_period": 20}),
        "Of course:" + " banana" * 8 + " ba",
    ),
    "json": (HookSpec("json_schema", {"schema": "request"}), make.GUIDED["json"].partition("lost")[0]),
    "pii": (HookSpec("pii"), without_values("pii")),
    "cloud_keys": (HookSpec("secrets"), without_values("cloud_keys")),
    "model_keys": (HookSpec("secrets"), without_values("model_keys")),
    "service_keys": (HookSpec("secrets"), without_values("service_keys")),
    "credentials": (HookSpec("secrets"), without_values("credentials")),
}
"""The text that each one's guard leaves of it."""


def test_there_is_one_of_each() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == sorted(SAID)
    assert sorted(SAID) == sorted([*make.ASKED, *make.GUIDED, *make.ECHOED])


def test_they_hold_every_entity() -> None:
    made = {sample.entity for samples in make.VALUES.values() for sample in samples}
    assert made == {kind.entity for kind in (*pii_samples.KINDS, *secret_samples.KINDS)}


@pytest.mark.parametrize("name", GUARDS)
def test_the_guard_that_each_is_for_withholds_it(name: str) -> None:
    guard, released = GUARDS[name]
    assert play(guard, FOLDER / f"{name}.jsonl").content == released


def test_what_is_withheld_of_json_leaves_it_json() -> None:
    released = play(HookSpec("pii", {"reserved": "find"}), FOLDER / "json.jsonl").content
    assert json.loads(released) == {"card": "[CREDIT_CARD]", "to": "[EMAIL_ADDRESS]", "status": "lost"}


@pytest.mark.parametrize("name", SAID)
def test_each_says_what_it_is_for_with_ids_logprobs_and_alternatives(name: str) -> None:
    recording = Recording.load(FOLDER / f"{name}.jsonl")
    assert recording.request == make.asked(name)
    deltas = [timed.delta for timed in recording.deltas]
    assert SAID[name] in "".join(delta.text for delta in deltas)
    assert deltas[-1].finish_reason == ("length" if name == "loop" else "stop")
    tokens = [token for delta in deltas for token in delta.tokens]
    assert tokens
    assert all(token.id is not None for token in tokens)
    assert name in make.VALUES or all(token.logprob is not None and token.top for token in tokens)
    assert 0 < recording.deltas[0].t <= recording.deltas[-1].t


def test_the_examples_withhold_what_they_are_for() -> None:
    redact, banned = (
        f"{ROOT}/examples/redact_email.py:RedactEmail",
        f"{ROOT}/examples/banned_phrase.py:BannedPhrase",
    )
    assert play(redact, FOLDER / "email.jsonl").content == "Our e-mail address is [e-mail]."
    tool_call = stream_of(FOLDER / "tool_call.jsonl", tool_call_parser="hermes")
    assert play(redact, tool_call).tool_calls == [("send_mail", '{"to": "[e-mail]"}')]
    for stream in (FOLDER / "email.jsonl", tool_call):
        assert_never_released(redact, stream, phrases.EMAIL, not_tried=WAYS)
    ended = play(banned, FOLDER / "phrase.jsonl")
    assert ended.content == "Our secret project is called "
    assert ended.stop_reason == "banned_phrase"
    assert_never_released(banned, FOLDER / "phrase.jsonl", phrases.BANNED_PHRASE, not_tried=WAYS)


@pytest.mark.parametrize("name", sorted(set(SAID) - {"email", "json", "phrase", "pii", "tool_call"}))
def test_the_examples_let_the_rest_through_untouched(name: str) -> None:
    recording = Recording.load(FOLDER / f"{name}.jsonl")
    for hook in ("redact_email.py:RedactEmail", "banned_phrase.py:BannedPhrase"):
        released = play(f"{ROOT}/examples/{hook}", recording)
        tokens = [token for timed in recording.deltas for token in timed.delta.tokens]
        assert released.content == "".join(timed.delta.text for timed in recording.deltas)
        if recording.request.sampling.logprobs is not None and tokens[-1].raw == b"<|im_end|>":
            tokens[-1] = tokens[-1]._replace(raw=b"", top=())  # contract 8.4
        assert released.tokens == tuple(tokens)
