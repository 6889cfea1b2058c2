"""Do values leave, or others come back? A part of `make bench NAME=leaks`.

Random prompts hold e-mail addresses, card numbers and names. The model writes their placeholders, those of
other callers, beginnings and other forms of both, the values themselves, values that were never sent, and
numbers that are a value of the caller's and more. One of its outputs is whole, and the others are cut at
random. No value may reach the model, no placeholder of another request may come back, and the outputs must be
the same.
"""

import json
import random
from collections.abc import Iterator
from functools import cache

from engine.protocol import Channel, Delta, Deltas, GenerationRequest, SamplingParams, Token, ToolCall
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.detect.placeholders import placeholder_for, placeholders_in
from hooks.loading.given import load
from hooks.pipeline.pipeline import Pipeline
from hooks.prompts.texts import prompt_texts
from hooks.testing.play import vetted

NUM_OUTPUTS = 8
ROLES = ("user", "tool", "system")
SENT = (
    *("nann@initech.org", "bo@initech.net", "kite@initech.org", "4111 1111 1111 1111"),
    *('the "Blue" bird', "Red Kite"),
)
NEVER_SENT = ("eve@initech.org", "5555 5555 5555 4444", "black rook")
REPLACED = ("[EMAIL_ADDRESS]", "[CREDIT_CARD]", "[name]")
FILLERS = ("and", "then \\ ", "[", "[EMAIL_ADDRESS", "]", "mail:", "é", "[[", "E")
_NAMES = 'the "Blue" bird|black rook'
_REST = " 7391"
"""What makes a number of any value."""
_NUMBERED = r"(?:4111 1111 1111 1111|initech\.(?:org|net)|[Rr]ed [Kk]ite|bird) 7391\b"


@cache
def pipeline() -> Pipeline:
    pii = Pii(entities=["EMAIL_ADDRESS", "CREDIT_CARD"], prompt="redact", restore=True)
    names = Patterns({"name": _NAMES, "number": _NUMBERED}, prompt="redact", restore=True)
    return Pipeline(load([pii, names, Phrases(["red kite"], prompt="redact", restore=True)]))


def issued(request: GenerationRequest) -> list[str]:
    texts = [text.text for text in prompt_texts(request)]
    return [text[start:end] for text in texts for start, end in placeholders_in(text, 0, len(text))]


def answer(rng: random.Random, own: list[str], sent: list[str]) -> Iterator[tuple[str, str]]:
    """Pieces of an answer: as the model writes each, and as the client should get it."""
    for _ in range(rng.randint(1, 6)):
        kind, i = rng.randint(0, 7), rng.randrange(len(own))
        other = placeholder_for("EMAIL_ADDRESS", rng.choice(SENT), "another")
        never = rng.randrange(len(NEVER_SENT))
        yield (
            (own[i], sent[i]),
            (own[i], sent[i]),
            (other, other),
            (f"{own[i]}{_REST}", f"{sent[i]}[number]"),
            (own[i].replace("_", "-"), own[i].replace("_", "-")),
            (sent[i], sent[i]),
            (NEVER_SENT[never], REPLACED[never]),
            (rng.choice(FILLERS),) * 2,
        )[kind]


async def run(num_streams: int, seed: int) -> int:
    """Run so many streams. Returns how many values came back. Raises `AssertionError`."""
    rng = random.Random(seed)
    num_restored = 0
    for _ in range(num_streams // NUM_OUTPUTS):
        sent = rng.sample(SENT, rng.randint(1, 3))
        request = GenerationRequest(
            request_id="leaks",
            model="m",
            endpoint="chat",
            messages=tuple({"role": rng.choice(ROLES), "content": f"About {value}."} for value in sent),
            caller=str(seed),
            sampling=SamplingParams(n=NUM_OUTPUTS),
        )
        call = ToolCall(0, "f") if rng.random() < 0.4 else None
        wanted = ""

        async def model(
            masked: GenerationRequest, sent: list[str] = sent, call: ToolCall | None = call
        ) -> Deltas:
            nonlocal wanted, num_restored
            own = issued(masked)
            assert len(own) == len(sent), "a value reached the model"
            assert not any(value in str(masked) for value in sent), "a value reached the model"
            pieces = [*answer(rng, own, sent)]
            num_restored += sum(written in own for written, _ in pieces)
            written, wanted = (" ; ".join(texts) for texts in zip(*pieces, strict=True))
            if call is not None:
                written, wanted = json.dumps({"a": written}), json.dumps({"a": wanted})
            for index in range(NUM_OUTPUTS):
                for delta in cut(rng, written, index, call):
                    yield delta

        texts = [""] * NUM_OUTPUTS
        async for delta in vetted(pipeline().open(request), model):
            texts[delta.index] += delta.text
        if call is not None:
            texts, wanted = [json.loads(text)["a"] for text in texts], json.loads(wanted)["a"]
        assert set(texts) == {wanted}, (sent, wanted, set(texts))
    return num_restored


def cut(rng: random.Random, text: str, index: int, call: ToolCall | None) -> Iterator[Delta]:
    """The text of one output in random pieces; of the first output, in one."""
    size = len(text) if index == 0 else rng.choice((1, 2, 5, 20))
    while text:
        piece, text = text[:size], text[size:]
        channel: Channel = "content" if call is None else "tool_call"
        token = Token(5, piece, piece.encode(), -0.5)
        yield Delta(index=index, text=piece, tokens=(token,), channel=channel, tool_call=call)
    yield Delta(index=index, finish_reason="stop")
