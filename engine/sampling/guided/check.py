"""A process of its own that tries grammars, so that no grammar can block or end the service.

The text of a grammar comes from a stranger, and the library takes minutes or gigabytes for some. Here such a
grammar costs this process: one that takes longer than `CPU_SECONDS`, or needs more than `MEMORY`, ends it,
and the next grammar gets a new process. The module is a script, called with the size of the vocabulary. It
loads nothing but the library. A job is a line of JSON,

    {"kind": "json", "text": "{\"type\": \"object\"}", "whitespace": "[ ]{1,32}"}

and so is its outcome: `{"grammar": ...}` in the library's own form, or `{"error": ...}`.
"""

import contextlib
import json
import random
import resource
import signal
import sys
import time
from collections.abc import Iterable
from functools import cache
from typing import Any

import llguidance
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

CPU_SECONDS = 2.0
MEMORY = 2 * 1024**3
NUM_TEXTS = 8
NUM_BYTES = 24
TRYING_SECONDS = 0.2
"""Each grammar is tried with `NUM_TEXTS` random texts of `NUM_BYTES`, for this long at most. A grammar that
is too much for the library is often too much at once."""
MAX_REASON = 300
"""Characters of an error."""


def limits() -> LLParserLimits:
    """The limits of a grammar, and of one step in it."""
    # A lexer state takes one or two kilobytes, and is kept with its grammar. Large lexemes are not computed
    # ahead: their cost depends on the vocabulary, unknown to this process. The mask of a large schema takes
    # some thousands of items; an ambiguous one takes 20 microseconds an item.
    return LLParserLimits(
        max_lexer_states=30_000, step_max_items=10_000, precompute_large_lexemes=False, verbose_errors=False
    )


def convert(kind: str, text: str, whitespace: str) -> str:
    """The grammar in the library's form. Raises `ValueError`."""
    match kind:
        case "json":
            with contextlib.suppress(RecursionError):  # the library judges it
                check_patterns(json.loads(text))
            if whitespace:
                return LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": whitespace})
            return LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_flexible": False})
        case "choice":
            # Lark reads JSON's escapes.
            return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, json.loads(text))))
        case "regex":
            return LLMatcher.grammar_from_regex(text)
        case "lark":
            return LLMatcher.grammar_from_lark(text)
        case _:
            return llguidance.grammar_from("grammar", text)


def check_patterns(schema: Any) -> None:
    """Raise `ValueError` for an object whose `patternProperties` name only what its `properties` name.

    The library finds no name after the last comma of such an object, and gives the output up.
    """
    if isinstance(schema, list):
        for one in schema:
            check_patterns(one)
    if not isinstance(schema, dict):
        return
    named, patterns = _keys(schema.get("properties")), _keys(schema.get("patternProperties"))
    is_closed = schema.get("additionalProperties") is False
    if is_closed and named and patterns and _are_exhausted(named, patterns):
        raise ValueError("patternProperties match no name that properties do not have; leave them out")
    for one in schema.values():
        check_patterns(one)


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def _are_exhausted(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Whether no property can follow in an object that has all of these."""
    properties = {name: {"const": 0} for name in names}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "patternProperties": {pattern: {} for pattern in patterns},
        "additionalProperties": False,
    }
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})
    matcher = LLMatcher(_bytes_tokenizer(), grammar, log_level=0, limits=limits())
    text = json.dumps(dict.fromkeys(properties, 0), separators=(",", ":"), ensure_ascii=False)[:-1] + ","
    if matcher.is_error() or matcher.try_consume_tokens(list(text.encode())) < len(text.encode()):
        return matcher.is_error()
    matcher.compute_bitmask()
    return matcher.is_error()


def readable(error: str) -> str:
    if "NoExtension" in error:
        return "nothing can satisfy it"
    return " ".join(error.removesuffix("<non-verbose/>").split())[:MAX_REASON]


def try_out(grammar: LLMatcher) -> str:
    """Begin a few random texts of the grammar, rather nested ones. Returns the error that came up, or ""."""
    rng, until = random.Random(0), time.process_time() + TRYING_SECONDS
    for _ in range(NUM_TEXTS):
        text = grammar.deep_copy()
        for _ in range(NUM_BYTES):
            mask = text.compute_bitmask()
            allowed = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
            if text.is_error() or not allowed or time.process_time() > until:
                break
            nesting = [byte for byte in allowed if byte in b'{["(']
            text.consume_token(rng.choice(nesting if nesting and rng.random() < 0.5 else allowed))
        if text.is_error():
            return text.get_error()
    return ""


class Bytes:
    """A vocabulary of bytes, and of tokens without text, which a grammar may name by their ids."""

    eos_token_id = 256
    bos_token_id = None

    def __init__(self, vocab_size: int) -> None:
        self.tokens = [bytes([i]) for i in range(256)] + [b""] * max(1, vocab_size - 256)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _bytes_tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(Bytes(0)))


def main() -> None:
    with contextlib.suppress(ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    tokenizer = LLTokenizer(TokenizerWrapper(Bytes(int(sys.argv[1]))))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            grammar = convert(**json.loads(line))
            matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits())
            error = matcher.get_error() or try_out(matcher)
            outcome = {"error": error} if error else {"grammar": grammar}
        except ValueError as error:
            outcome = {"error": str(error)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        if "error" in outcome:
            outcome["error"] = readable(outcome["error"])
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
