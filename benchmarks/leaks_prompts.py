"""Does a phrase get out that begins in a prompt, or in within a name? A part of `make bench NAME=leaks`.

Random texts are cut in two. A message, whoever wrote it, holds the first part, and the output is to continue
it. The engine says the second part in random pieces. Nothing of a phrase may be released, whether the phrase
begins in the message or in the output, and all other text must be. Names of tools, calls and callers have
phrases among their words. The engine may get no name with a phrase.
"""

import random
import re
from collections.abc import Mapping
from typing import Any

from benchmarks.leak_guards import MATCH
from benchmarks.leaks import random_deltas, random_tokens
from engine.protocol import Delta, Deltas, GenerationRequest
from hooks.builtin.patterns import Patterns
from hooks.builtin.phrases import Phrases
from hooks.detect.lead import MAX_LEAD
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from hooks.prompts.lead import leads_of
from hooks.testing.play import vetted

ROLES = ("user", "system", "developer", "tool", "assistant")
CONTINUING: tuple[Mapping[str, Any], ...] = (
    {"continue_final_message": True},
    {"add_generation_prompt": False},
    {"chat_template_kwargs": {"continue_final_message": True}},
    {"chat_template_kwargs": {"add_generation_prompt": False}},
)
PHRASES = ("red bird", "blue")
WORDS = ("get", "red", "bird", "blue", "URL", "of", "list")
_IN_NAME = re.compile("red_?bird|blue")


def calls_of(name: str, arguments: str = "{}") -> list[dict[str, Any]]:
    return [{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}]


def random_message(rng: random.Random, text: str) -> dict[str, Any]:
    """A message whose text is this, in one of the forms that it may have."""
    role, at = rng.choice(ROLES), rng.randint(0, len(text))
    if role == "assistant" and rng.random() < 0.3:
        return {"role": role, "content": None, "tool_calls": calls_of("f", text)}
    parts = [{"type": "text", "text": text[:at]}, {"type": "text", "text": text[at:]}]
    return {"role": role, "content": rng.choice((text, parts))}


def random_name(rng: random.Random) -> str:
    """Words that are joined by `_`, `-` or `.`, or that begin with a capital each."""
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.5:
        return rng.choice("_-.").join(words)
    return words[0] + "".join(word[0].upper() + word[1:] for word in words[1:])


def expected(leads: tuple[str, ...], output: str) -> str:
    """What may be released of the output after a message that may have these forms in the prompt."""
    joined = [
        (found.start() - len(lead), found.end() - len(lead))
        for lead in leads
        for found in MATCH.finditer(lead + output)
    ]
    alone = [found.span() for found in MATCH.finditer(output)]
    gone = {i for start, end in (*joined, *alone) for i in range(start, end)}
    return "".join(character for i, character in enumerate(output) if i not in gone)


def check_names(admitted: GenerationRequest) -> None:
    """Raises `AssertionError` if a name in the request has a phrase."""
    named, calling, *_ = admitted.messages
    functions = admitted.tools[0]["function"], calling["tool_calls"][0]["function"]
    names = {named["name"], *(function["name"] for function in functions)}
    assert not any(_IN_NAME.search(re.sub("[-. ]", "_", name.lower())) for name in names), names


async def run(num_streams: int, seed: int) -> int:
    """Run so many streams. Returns how many had a phrase across the lead's end. Raises `AssertionError`."""
    rng = random.Random(seed)
    guards = Patterns([MATCH.pattern], template=""), Phrases(PHRASES, prompt="redact", channels=["echo"])
    pipeline = Pipeline([LoadedHook.of(type(guard).__name__, guard) for guard in guards])
    num_across = 0
    for _ in range(num_streams):
        tokens = random_tokens(rng)
        at = rng.choice([0, *(i for i, token in enumerate(tokens, 1) if token.text)])
        lead, output = ("".join(token.text for token in part) for part in (tokens[:at], tokens[at:]))
        name = random_name(rng)
        request = GenerationRequest(
            request_id="leaks",
            model="m",
            endpoint="chat",
            messages=(
                {"role": "user", "name": name, "content": "-"},
                {"role": "assistant", "content": None, "tool_calls": calls_of(name)},
                {"role": "user", "content": "-"},
                random_message(rng, lead),
            ),
            tools=({"type": "function", "function": {"name": name}},),
            extra=rng.choice(CONTINUING),
        )

        leads = leads_of(request, 0, "content", MAX_LEAD)
        assert any(form.endswith(lead) for form in leads or [""]), (request, leads)
        deltas = list(random_deltas(rng, tokens[at:]))

        async def source(admitted: GenerationRequest, deltas: list[Delta] = deltas) -> Deltas:
            check_names(admitted)
            for delta in deltas:
                yield delta

        released = [delta async for delta in vetted(pipeline.open(request), source)]
        assert "".join(delta.text for delta in released) == expected(leads, output), (request, output)
        num_across += any(one.start() < len(lead) < one.end() for one in MATCH.finditer(lead + output))
    return num_across
