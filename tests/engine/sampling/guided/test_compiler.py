"""Grammars are compiled or refused. None of them costs more than its own request."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from engine.sampling.guided import compiler as compiler_module
from engine.sampling.guided.compiler import GrammarCompiler, GrammarError
from engine.sampling.guided.grammar import Grammar
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer
from tests.engine.conftest import VOCAB_SIZE


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerFast) -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(LocalTokenizer(ModelTokenizer.of(tokenizer)), VOCAB_SIZE, (1,))
    yield compiler
    compiler.close()


def json_grammar(schema: Any) -> Grammar:
    return Grammar("json", json.dumps(schema))


def takes(compiler: GrammarCompiler, grammar: Grammar, text: str) -> bool:
    """Whether the grammar accepts the whole text."""
    matcher = compiler.compile(grammar).matcher.deep_copy()
    ids = compiler.tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


BOMB = {"allOf": [{"type": "integer", "multipleOf": prime} for prime in (9973, 9967, 9949, 9941)]}
HOSTILE = {
    "a product of automata": json_grammar(BOMB),
    "ten thousand properties": json_grammar(
        {"properties": {f"p{i}": {"type": "string"} for i in range(10**4)}}
    ),
    "parentheses without end": Grammar("regex", "(" * 10**5 + "a" + ")" * 10**5),
    "parentheses in a grammar": Grammar("grammar", "start: " + "(" * 10**5 + '"a"' + ")" * 10**5),
    "parentheses in GBNF": Grammar("grammar", "root ::= " + "(" * 10**5 + '"a"' + ")" * 10**5),
    "nesting": Grammar("json", '{"anyOf":[' * 5000 + "{}" + "]}" * 5000),
    "a reference to itself": json_grammar({"$ref": "#"}),
    "alternatives to the power of alternatives": json_grammar(
        {"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {}}} for j in range(4)]} for i in range(12)]}
    ),
    "more possible properties than are looked at": json_grammar(
        {"properties": {f"p{i}": {"type": "string"} for i in range(800)}, "additionalProperties": False}
    ),
    "somebody's server": json_grammar({"$ref": "http://127.0.0.1/schema.json"}),
    "a file": json_grammar({"$ref": "file:///etc/passwd"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_refused_and_the_next_one_is_compiled(
    name: str, compiler: GrammarCompiler
) -> None:
    with pytest.raises(GrammarError):
        compiler.compile(HOSTILE[name])
    assert compiler.has(HOSTILE[name]), "the grammar is not tried again"
    with pytest.raises(GrammarError):
        compiler.compile(HOSTILE[name])
    assert takes(compiler, Grammar("regex", f"[a-z]+{len(name)}"), f"abc{len(name)}")


@pytest.mark.parametrize(
    "grammar",
    [
        json_grammar({"type": "nonsense"}),
        json_grammar({"type": "integer", "minimum": 5, "maximum": 3}),
        json_grammar({"enum": []}),
        json_grammar({"not": {"type": "string"}}),
        json_grammar({"$ref": "#/$defs/missing"}),
        json_grammar(False),
        Grammar("json", '{"type":"object"}', "("),
        Grammar("regex", "(a"),
        Grammar("regex", r"(a)\1"),
        Grammar("grammar", "root ::= missing"),
        Grammar("grammar", "start: ("),
        Grammar("grammar", ""),
    ],
)
def test_an_invalid_grammar_is_refused_with_a_short_reason(
    grammar: Grammar, compiler: GrammarCompiler
) -> None:
    with pytest.raises(GrammarError) as caught:
        compiler.compile(grammar)
    assert str(caught.value).strip()
    assert len(str(caught.value)) <= 300


@given(choices=st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_a_choice_accepts_its_texts_and_no_other(choices: list[str], compiler: GrammarCompiler) -> None:
    grammar = Grammar("choice", json.dumps(choices))
    assert all(takes(compiler, grammar, choice) for choice in choices)
    assert not takes(compiler, grammar, "".join(choices) + "!")


def test_whitespace_in_json_is_short(compiler: GrammarCompiler) -> None:
    grammar = json_grammar({"type": "object"})
    for text in ('{"a":1}', '{"a": 1}', '{\n  "a": 1\n}', '{\r\n\t\t"a": [\n 1]}'):
        assert takes(compiler, grammar, text)
    for text in ('{  "a":1}', '{\n\n"a":1}', "{\n" + " " * 33 + '"a":1}', '{"a":1} ', ' {"a":1}'):
        assert not takes(compiler, grammar, text)
    assert takes(compiler, grammar._replace(whitespace=""), '{"a":1}')
    assert not takes(compiler, grammar._replace(whitespace=""), '{"a": 1}')
    assert takes(compiler, grammar._replace(whitespace="[ ]{1,3}"), '{   "a":1}')


def test_few_grammars_are_kept(monkeypatch: pytest.MonkeyPatch, compiler: GrammarCompiler) -> None:
    monkeypatch.setattr(compiler_module, "MAX_COMPILED", 3)
    grammars = [Grammar("regex", f"x{i}") for i in range(4)]
    made = [compiler.compile(grammar) for grammar in grammars[:3]]
    assert compiler.compile(grammars[0]) is made[0]
    compiler.compile(grammars[3])
    kept = [compiler.has(grammar) for grammar in grammars]
    assert sum(kept) <= 3
    assert kept[3]
    assert takes(compiler, grammars[1], "x1")


def test_a_grammar_that_took_too_long_to_follow_is_refused(
    monkeypatch: pytest.MonkeyPatch, compiler: GrammarCompiler
) -> None:
    grammar = Grammar("regex", "slow+")
    compiled = compiler.compile(grammar)
    with compiled.timed():
        compiled.matcher.deep_copy().compute_bitmask()
    assert compiler.compile(grammar) is compiled
    assert compiled.seconds > 0
    with monkeypatch.context() as patch:
        patch.setattr(compiler_module, "CREDIT", compiled.seconds / 2)
        for _ in range(2):
            with pytest.raises(GrammarError, match="too long to follow"):
                compiler.compile(grammar)
        compiled.num_tokens += 10**9
        assert compiler.compile(grammar) is compiled


def test_without_an_end_of_sequence_no_grammar_is_compiled(tokenizer: PreTrainedTokenizerFast) -> None:
    compiler = GrammarCompiler(LocalTokenizer(ModelTokenizer.of(tokenizer)), VOCAB_SIZE, ())
    with pytest.raises(GrammarError, match="end-of-sequence"):
        compiler.compile(Grammar("regex", "a"))
    compiler.close()


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["score", "tags"], ["^score$"]),
        (["a"], ["^a$"]),
        (["a", "b"], ["^[ab]$"]),
        (["é"], ["^é$", "^é$|^é$"]),
    ],
)
def test_patterns_that_name_only_named_properties_are_refused(
    compiler: GrammarCompiler, names: list[str], patterns: list[str]
) -> None:
    """The library finds no name behind the last comma of such an object, in the middle of an output."""
    schema = {
        "type": "object",
        "properties": dict.fromkeys(names, INTEGER),
        "patternProperties": dict.fromkeys(patterns, INTEGER),
        "additionalProperties": False,
    }
    for whole in (schema, {"type": "array", "items": schema}, {"anyOf": [INTEGER, schema]}):
        with pytest.raises(GrammarError):
            compiler.compile(json_grammar(whole))


@pytest.mark.parametrize("pattern", ["^s", "^score", "^(score|more)$", "^x-"])
def test_patterns_beside_properties_may_match_them_too(compiler: GrammarCompiler, pattern: str) -> None:
    schema = {
        "type": "object",
        "properties": {"score": INTEGER},
        "patternProperties": {pattern: INTEGER},
        "additionalProperties": False,
    }
    assert takes(compiler, json_grammar(schema), '{"score": 5}')
