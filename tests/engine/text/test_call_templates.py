"""Chat templates of families of models: earlier turns with calls are laid out, and read as the same calls.

The templates are small, and have the traits of the families' own: how they go through a call's arguments,
whether they join them as text, and whether they write a call's name or its id.
"""

import json
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from engine.parsers.formats import FORMATS
from engine.parsers.suggested import MARKERS, suggested
from engine.protocol import GenerationRequest
from engine.sources.model_tokenizer import ModelTokenizer
from engine.text.tokenizer import LocalTokenizer
from tests.engine.parsers.test_formats import read
from tests.engine.parsers.written_calls import TOOLS
from tests.helpers import make_request


def each(call: str) -> str:
    return "{% for c in m.tool_calls %}{% set f = c.function %}" + call + "{% endfor %}"


def items(argument: str) -> str:
    return "{% for k, v in f.arguments.items() %}" + argument + "{% endfor %}"


def named(key: str = "arguments", arguments: str = "f.arguments | tojson") -> str:
    return '{"name": "{{ f.name }}", "' + key + '": {{ ' + arguments + " }}}"


JOIN = "{% if not loop.last %}, {% endif %}"
HERMES = each("<tool_call>\n" + named() + "\n</tool_call>\n")
WORD = "{% if v is string %}'{{ v }}'{% elif v is none %}null{% else %}{{ v | tojson }}{% endif %}"
JSON_OR_TEXT = "{{ v if v is string else v | tojson(ensure_ascii=False) }}"
QWEN = (
    "\n<function={{ f.name }}>\n"
    + items("<parameter={{ k }}>\n" + JSON_OR_TEXT + "\n</parameter>\n")
    + "</function>\n"
)
GEMMA = (
    "{% macro write(v) %}{% if v is string %}{{ '<|\"|>' + v + '<|\"|>' }}"
    "{% elif v is boolean %}{{ 'true' if v else 'false' }}"
    "{% elif v is mapping %}{{ '{' }}{% for k, w in v | dictsort %}{{ k }}:{{ write(w) }}"
    "{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}"
    "{% elif v is sequence %}[{% for w in v %}{{ write(w) }}{% if not loop.last %},{% endif %}{% endfor %}]"
    "{% else %}{{ v }}{% endif %}{% endmacro %}"
)
PYTHONIC = "[" + each("{{ f.name }}(" + items("{{ k }}=" + WORD + JOIN) + ")" + JOIN) + "]"


def dsml(section: str) -> str:
    call = each(
        '\n<{{ d }}invoke name="{{ f.name }}">\n'
        + items(
            "<{{ d }}parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">"
            + JSON_OR_TEXT
            + "</{{ d }}parameter>\n"
        )
        + "</{{ d }}invoke>\n"
    )
    return "{% set d = '｜DSML｜' %}<{{ d }}" + section + ">" + call + "</{{ d }}" + section + ">"


CALLS = {
    "deepseek_v3": "<｜tool▁calls▁begin｜>"
    + each(
        "{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + f.name + '\\n' + '```json' + '\\n'"
        " + f.arguments + '\\n' + '```' + '<｜tool▁call▁end｜>' }}"
    )
    + "<｜tool▁calls▁end｜>",
    "deepseek_v31": "<｜tool▁calls▁begin｜>"
    + each("{{ '<｜tool▁call▁begin｜>' + f.name + '<｜tool▁sep｜>' + f.arguments + '<｜tool▁call▁end｜>' }}")
    + "<｜tool▁calls▁end｜>",
    "deepseek_v32": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "ernie45": "{# answers: <response> #}" + HERMES,
    "gemma4": GEMMA + each("{{ '<|tool_call>call:' + f.name }}{{ write(f.arguments) }}{{ '<tool_call|>' }}"),
    "glm45": each(
        "\n<tool_call>{{ f.name }}\n"
        + items("<arg_key>{{ k }}</arg_key>\n<arg_value>" + JSON_OR_TEXT + "</arg_value>\n")
        + "</tool_call>"
    ),
    "granite": "<|tool_call|>[" + each(named() + JOIN) + "]",
    "granite4": "{# <|start_of_role|> #}" + HERMES,
    "hermes": HERMES,
    "hunyuan_a13b": "<tool_calls>[" + each(named() + JOIN) + "]</tool_calls>",
    "kimi_k2": "<|tool_calls_section_begin|>"
    + each(
        "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
        "{% if f.arguments is string %}{{ f.arguments }}{% else %}{{ f.arguments | tojson }}{% endif %}"
        "<|tool_call_end|>"
    )
    + "<|tool_calls_section_end|>",
    "llama3_json": "{# <|python_tag|> #}" + each(named("parameters") + "{% if not loop.last %}; {% endif %}"),
    "llama4_pythonic": "{# <|header_start|> [func_name1(param1=value1)] #}" + PYTHONIC,
    "longcat": HERMES.replace("tool_call>", "longcat_tool_call>"),
    "minimax_m2": "\n<minimax:tool_call>\n"
    + each(
        "{{ '<invoke name=\"' + f.name + '\">\\n' }}"
        + items('<parameter name="{{ k }}">' + JSON_OR_TEXT + "</parameter>\n")
        + "</invoke>\n"
    )
    + "</minimax:tool_call>",
    "mistral": "[TOOL_CALLS] [" + each(named() + JOIN) + "]",
    "olmo3": "<function_calls>\n"
    + each("{{ f.name + '(' }}" + items("{{ k }}=" + WORD + JOIN) + ")\n")
    + "</function_calls>",
    "phi4_mini_json": "functools[" + each(named(arguments="f.arguments") + JOIN) + "]",
    "pythonic": "{# [func_name1(params_name1=params_value1)] #}" + PYTHONIC,
    "qwen3_coder": each("\n<tool_call>" + QWEN + "</tool_call>"),
    "seed_oss": each("\n<seed:tool_call>" + QWEN + "</seed:tool_call>"),
    "step3": "<｜tool_calls_begin｜>"
    + each(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{{ f.name }}">'
        + items('<steptml:parameter name="{{ k }}">' + JSON_OR_TEXT + "</steptml:parameter>")
        + "</steptml:invoke><｜tool_call_end｜>"
    )
    + "<｜tool_calls_end｜>",
    "xlam": '{# [{"name": "tool_call_name"}] #}[' + each(named() + JOIN) + "]",
}
"""By parser, the part of a template that writes a message's calls."""


def template_of(parser: str) -> str:
    return (
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% if m.tool_calls %}|calls|"
        + CALLS[parser]
        + "|end|{% else %}|{{ m.role }} {{ m.tool_call_id }}|{{ m.content }}{% endif %}{% endfor %}"
    )


def local(tokenizer: PreTrainedTokenizerFast, template: str) -> LocalTokenizer:
    fast = tokenizer.backend_tokenizer
    made = PreTrainedTokenizerFast(tokenizer_object=fast, chat_template=template)
    return LocalTokenizer(ModelTokenizer.of(made))


def history(*calls: tuple[str, dict[str, Any]]) -> GenerationRequest:
    made = [
        {"id": f"call-{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for i, (name, given) in enumerate(calls)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in made]
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": made}, *results]
    return make_request(messages=tuple(messages), tools=TOOLS)


def test_each_template_has_a_sample() -> None:
    assert set(CALLS) == set(MARKERS) - {"openai"} <= set(FORMATS)


@pytest.mark.parametrize("parser", CALLS)
def test_calls_of_earlier_turns_are_laid_out_as_the_model_writes_them(
    parser: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    calls = [("f", {"s": "Zürich", "i": 2, "b": True, "l": ["x", 1], "o": {"k": "v"}}), ("none", {})]
    prompt = local(tokenizer, template_of(parser)).chat_text(history(*calls))
    written = prompt.partition("|calls|")[2].partition("|end|")[0]
    made, content = read(parser, [written])
    assert [(name, json.loads(arguments)) for name, arguments in made] == calls
    assert not content.strip()


@pytest.mark.parametrize("parser", CALLS)
def test_a_template_suggests_the_parser_of_its_calls(parser: str, tokenizer: PreTrainedTokenizerFast) -> None:
    found = suggested(local(tokenizer, template_of(parser)).chat_template)
    assert found is not None
    assert found.parser == parser
    assert all(marker in template_of(parser) for marker in found.markers)


def test_a_template_without_calls_suggests_no_parser() -> None:
    assert suggested("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}") is None


def test_a_template_that_writes_ids_gets_ids_with_the_tools_names(tokenizer: PreTrainedTokenizerFast) -> None:
    """Kimi K2 writes `functions.NAME:NUMBER`. The service's ids have no names."""
    prompt = local(tokenizer, template_of("kimi_k2")).chat_text(history(("f", {}), ("none", {"i": 1})))
    assert "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>" in prompt
    assert "|tool functions.none:1|done" in prompt
    assert "call-" not in prompt
    assert "|tool call-0|" in local(tokenizer, template_of("hermes")).chat_text(history(("f", {})))
