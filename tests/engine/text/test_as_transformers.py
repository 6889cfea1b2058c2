"""Tokenizers and chat templates give what they give in transformers, id by id and letter by letter."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from engine.protocol.demo import GUARDS, MODEL_DIR
from engine.sources.files import tokenizer_of
from engine.sources.model_tokenizer import ModelTokenizer
from engine.sources.transformers_files import read_tokenizer
from engine.text import template_rendering
from engine.text.template_rendering import RESERVED, render
from tests.engine.gguf_files import Kind, write_gguf
from tests.engine.text.test_call_templates import CALLS, template_of
from tests.helpers import examples
from tests.hooks.builtin.judges import TEMPLATES

TEXT = "A text. It's of some words , and don't end ; 1234 naïve café 中文 😀\n\n\ttwo  spaces <think> now"


def byte_level() -> PreTrainedTokenizerBase:
    """With special tokens, added tokens that take spaces away, and a token that is added behind the rest."""
    fast = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    made = PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token="<|im_start|>", eos_token="<|im_end|>", unk_token="<unk>"
    )
    added = [
        AddedToken("<think>", special=False, normalized=False),
        AddedToken("<stripped>", lstrip=True, rstrip=True),
        AddedToken("word", single_word=True),
    ]
    made.add_tokens(added)
    made.add_special_tokens({"pad_token": "<pad>", "additional_special_tokens": ["<tool>", "<a b>"]})
    return made


def metaspace() -> PreTrainedTokenizerBase:
    """As SentencePiece: a normalizer, bytes for unknown characters, and a first token before each text."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for letter in "▁abcdefghijklmnopqrstuvwxyz.,'é":
        vocab.setdefault(letter, len(vocab))
    merges = [("▁", "a"), ("t", "h"), ("th", "e"), ("▁", "the"), ("i", "n")]
    for pair in merges:
        vocab.setdefault("".join(pair), len(vocab))
    fast = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    fast.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")])
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token="<s>", eos_token="</s>", unk_token="<unk>", add_bos_token=True
    )


def word_piece() -> PreTrainedTokenizerBase:
    """As BERT: lower case, and words joined from pieces with the spaces before punctuation cleaned up."""
    words = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "a",
        "text",
        "##s",
        "it",
        "'",
        "s",
        ".",
        ",",
        "don",
        "t",
        "##é",
        "end",
    ]
    fast = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.decoder = decoders.WordPiece(cleanup=True)
    fast.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return PreTrainedTokenizerFast(
        tokenizer_object=fast,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        clean_up_tokenization_spaces=True,
    )


def split_special() -> PreTrainedTokenizerBase:
    """The names of special tokens in a text are text."""
    fast = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|im_end|>", split_special_tokens=True)


MADE: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "byte level": byte_level,
    "metaspace": metaspace,
    "word piece": word_piece,
    "special tokens split": split_special,
}
NAMES = [*MADE, "demo", "guard", "truncating", "GGUF"]


@pytest.fixture(scope="module", params=NAMES)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedTokenizerBase, ModelTokenizer]:
    """The tokenizer as transformers has it, and as Weir reads it of the same files the second time."""
    path = tmp_path_factory.mktemp("tokenizer")
    match request.param:
        case "demo":
            path = MODEL_DIR
        case "guard":
            path = next(iter(sorted(GUARDS.values())))
        case "GGUF":
            path /= "m.gguf"
            write_gguf(path, "llama", Kind.Q4_0)
        case "truncating":  # as the file of a model that embeds texts
            made = byte_level()
            made.backend_tokenizer.enable_truncation(4)
            made.backend_tokenizer.enable_padding(length=8)
            made.save_pretrained(path)
        case name:
            MADE[name]().save_pretrained(path)
    if path.is_dir() and not (path / "config.json").exists():
        (path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    tokenizer_of(str(path))
    return read_tokenizer(path), tokenizer_of(str(path))


PIECES = st.sampled_from(
    ["<think>", "<stripped>", "word", "<tool>", "<a b>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[CLS]"]
)
TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"])),
        PIECES,
        st.sampled_from(TEXT.split(" ")),
        st.just(" "),
    )
).map("".join)


@examples(300)
@given(text=TEXTS, adds=st.booleans())
def test_ids_and_texts_are_those_of_transformers(
    both: tuple[PreTrainedTokenizerBase, ModelTokenizer], text: str, adds: bool
) -> None:
    theirs, own = both
    ids = theirs(text, add_special_tokens=adds, padding=False, truncation=False)["input_ids"]
    assert own.fast.encode(text, add_special_tokens=adds).ids == ids
    for skips in (False, True):
        whole = theirs.decode(ids, skip_special_tokens=skips, clean_up_tokenization_spaces=False)
        assert own.fast.decode(ids, skip_special_tokens=skips) == whole


def test_the_vocabulary_and_the_special_tokens_are_those_of_transformers(
    both: tuple[PreTrainedTokenizerBase, ModelTokenizer],
) -> None:
    theirs, own = both
    assert own.fast.get_vocab() == theirs.get_vocab()
    added = own.fast.get_added_tokens_decoder()
    assert {i: str(token.__getstate__()) for i, token in added.items()} == {
        i: str(token.__getstate__()) for i, token in theirs.added_tokens_decoder.items()
    }
    assert (own.eos_token_id, dict(own.special_tokens)) == (theirs.eos_token_id, theirs.special_tokens_map)
    assert own.chat_template == theirs.chat_template


def test_a_tokenizer_without_a_fast_form_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match="Slow has no fast form"):
        ModelTokenizer.of(Slow())  # type: ignore[arg-type]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "the <b>weather</b> & 'more' in Zürich",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "n": {"type": "null"}},
            },
        },
    }
]
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Bern", "n": None}},
}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.", "name": None},
    {"role": "user", "content": [{"type": "text", "text": "How is <it>?"}, {"type": "text", "text": "Now "}]},
    {"role": "assistant", "content": "", "reasoning": "I look.", "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "tool_call_id": "c1", "content": '{"sun": true}'},
    {"role": "assistant", "content": " It is fine. ", "tool_calls": None},
]
LINE = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
WRITTEN = {
    "trimmed": "{% for m in messages %}\n  {{ m.content | trim }}\n    {% endfor %}\n",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "generation, scope": "{% set x = 1 %}{%- generation -%}{% set x = 2 %}{{ x }}{% endgeneration -%}{{ x }}",
    "loop controls": "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m }}{% endfor %}",
    "tojson": "{{ tools | tojson }}{{ messages | tojson(indent=2) }}{{ tools | tojson(sort_keys=true, "
    "separators=(',', ':'), ensure_ascii=true) }}",
    "date": "{{ strftime_now('%Y-%m-%d') }} {{ documents }} {{ bos_token }} {{ unknown }}|",
    "raises": "{{ raise_exception('no ' ~ messages[0].role) }}",
    "namespace": "{% set ns = namespace(n=0, self=3) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% endfor %}{{ ns.n }}{{ ns.self }}",
    "namespace, hidden": "{% set ns = namespace(__class__=0) %}",
    "namespace, set hidden": "{% set ns = namespace() %}{% set ns._n = 1 %}",
    "dict": "{{ dict(a=1) }}{{ dict.fromkeys(['a', 'b'], 2) }}{{ dict([('a', 1)]) }}",
    "dict, hidden": "{{ dict.__class__.__mro__ }}",
    "sandbox": "{{ messages.append(1) }}",
    "sandbox, class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "syntax": "{% for %}",
    "reasoning": "{% for m in messages %}{{ m.reasoning_content }}/{{ m.thinking }}/{{ m.reasoning }};"
    "{% endfor %}",
    "nulls": "{% for m in messages %}{{ m.keys() | list }}{% endfor %}",
    "types": "{{ value is mapping }}{{ value }}{{ other }}",
    "parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
    "line": LINE,
}
ALL = (
    WRITTEN
    | {name: text for name, text in TEMPLATES.items() if text}
    | {f"calls of {parser}": template_of(parser) for parser in CALLS}
    | {"demo": (MODEL_DIR / "chat_template.jinja").read_text()}
)
VARIABLES: dict[str, Any] = {"value": {"a": (1, 2.5, True)}, "other": object, "enable_thinking": False}
ERRORS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError)


def outcome(make: Callable[[], str]) -> tuple[str, str]:
    """The text, or the error's kind and, where the template says it, its words."""
    try:
        return "text", make()
    except ERRORS as error:
        return type(error).__name__, str(error) if type(error) is jinja2.TemplateError else ""


def theirs_and_own(template: str, chat: list[dict[str, Any]], **options: Any) -> list[tuple[str, str]]:
    fast = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    theirs = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|im_end|>", chat_template=template)
    special = theirs.special_tokens_map
    return [
        outcome(lambda: theirs.apply_chat_template(chat, tokenize=False, **options)),
        outcome(lambda: render(template, chat, **{**special, **options})),
    ]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
def test_a_template_writes_what_it_writes_in_transformers(name: str, tools: Any) -> None:
    for end in range(1, len(CHAT) + 1):
        for ending in ({"add_generation_prompt": True}, {}, {"continue_final_message": True}):
            theirs, own = theirs_and_own(ALL[name], CHAT[:end], tools=tools, **ending, **VARIABLES)
            assert own == theirs, (end, ending)


def test_the_templates_try_what_can_go_wrong() -> None:
    found = {theirs_and_own(template, CHAT)[1][0] for template in WRITTEN.values()}
    assert found >= {"text", "TemplateError", "SecurityError", "TemplateSyntaxError"}


@examples(300)
@given(
    contents=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4),
    name=st.sampled_from(["line", "trimmed", "tojson", "demo", "parts"]),
    goes_on=st.booleans(),
)
def test_any_text_is_written_as_in_transformers(contents: list[str], name: str, goes_on: bool) -> None:
    roles = ("user", "assistant")
    chat = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
    theirs, own = theirs_and_own(ALL[name], chat, continue_final_message=goes_on)
    assert own == theirs


def test_a_date_is_todays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Clock":
            return cls(2031, 2, 3)

    monkeypatch.setattr(template_rendering, "datetime", Clock)
    assert render("{{ strftime_now('%d %b %Y') }}", CHAT) == "03 Feb 2031"


def test_a_caller_may_set_no_argument_of_transformers() -> None:
    import inspect

    theirs = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    assert {"messages", *theirs} - {"self"} == RESERVED


def test_the_template_for_tools_is_taken_where_there_are_two(tmp_path: Path) -> None:
    fast = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    templates = {"default": "plain", "tool_use": "with tools"}
    PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=templates).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert tokenizer_of(str(tmp_path)).chat_template == templates
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == templates
