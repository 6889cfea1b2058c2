"""A secret is found wherever a client could read it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, Token, ToolCall, TopLogprob
from hooks.testing import leaks

SECRET = "hunter2"


def token(text: str, *alternatives: str, raw: bytes | None = None) -> Token:
    top = tuple(TopLogprob(1, other.encode(), -1.0) for other in alternatives)
    return Token(1, text, text.encode() if raw is None else raw, -0.5, top)


@pytest.mark.parametrize(
    ("deltas", "place"),
    [
        ([Delta(text="it is hun"), Delta(text="ter2")], "the text of content, output 0"),
        ([Delta(text="hun", channel="reasoning"), Delta(text="ter2")], None),
        ([Delta(text="hun"), Delta(text="x", index=1), Delta(text="ter2")], "the text of content, output 0"),
        ([Delta(text="hun", index=1), Delta(text="ter2")], None),
        ([Delta(text="hunter2", channel="echo", index=1)], "the text of echo, output 1"),
        ([Delta(channel="tool_call", tool_call=ToolCall(0, "hunter2_f"))], "a tool's name, output 0"),
        (
            [
                Delta(channel="tool_call", tool_call=ToolCall(i, "f"), text=text)
                for i, text in enumerate(("hun", "ter2"))
            ],
            None,
        ),
        ([Delta(finish_reason="content_filter", stop_reason="said hunter2")], "the stop_reason, output 0"),
        ([Delta(finish_reason="stop", stop_reason=7)], None),
        ([Delta(text="***", tokens=(token("hun"), token("ter2")))], "the tokens' texts, output 0"),
        (
            [Delta(text="***", tokens=(token("*", raw=b"hun"), token("*", raw=b"ter2")))],
            "the tokens' bytes, output 0",
        ),
        ([Delta(text="*", tokens=(token("*", "my hunter2"),))], "the top alternatives, output 0"),
        (
            [
                Delta(text="*", tokens=(token("*", "no", "hun"),)),
                Delta(text="ter", tokens=(token("ter"),)),
                Delta(tokens=(token("", "2!", raw=b""),), finish_reason="stop"),
            ],
            "the top alternatives, output 0",
        ),
        ([Delta(text="**", tokens=(token("*", "hun"), token("*", "x"), token("*", "ter2")))], None),
    ],
)
def test_finds_it(deltas: list[Delta], place: str | None) -> None:
    assert leaks.find(SECRET, deltas) == place


pieces = st.text("ab", min_size=1, max_size=3)


@given(st.text("ab", min_size=1, max_size=5), st.lists(st.lists(pieces, min_size=1, max_size=3), max_size=4))
def test_alternatives_spell_what_any_choice_of_them_says(secret: str, choices: list[list[str]]) -> None:
    tokens = tuple(token("", *rest, raw=first.encode()) for first, *rest in choices)
    said = any(secret in "".join(words) for words in product(*choices))
    assert (leaks.find(secret, [Delta(tokens=tokens)]) is not None) == said
