"""The formats in which families of models write tool calls, as data. Parsers have vLLM's names.

A new format is an entry of `FORMATS` with one of the kinds of arguments. `call_format` reads it.
"""

import re
from collections.abc import Mapping

from engine.parsers.braced import MARK, braced
from engine.parsers.call_format import Call, Format, read_name
from engine.parsers.json_call import begin_call, read_call, skip_id
from engine.parsers.json_reader import NotACallError, Reader
from engine.parsers.pythonic import pythonic
from engine.parsers.scan import Calls, Scan
from engine.parsers.tagged import Tags, tagged


def named(end: str, *, before_end: str = "", name: str = "(.+)") -> Call:
    """A call that is a name, the text `end`, and arguments in JSON. `name` is a regular expression of all
    text before `end`; its first group is the name."""
    pattern = re.compile(name)

    def read(reader: Reader, calls: Calls) -> Scan[None]:
        begin = reader.position
        found = pattern.fullmatch((yield from read_name(reader, end)))
        if not found:
            raise NotACallError
        if found[1] != found[0]:  # a model's own id of the call
            reader.tape.mute(begin, reader.position)
        reader.position += len(end)
        if before_end and not (yield from reader.optional(before_end)):
            raise NotACallError
        yield from begin_call(reader, found[1], calls)

    return read


def _mistral(reader: Reader, calls: Calls) -> Scan[None]:
    """JSON, or since Mistral's eleventh tokenizer a name, `[ARGS]` and arguments."""
    if (yield from reader.peek()) == "{":
        yield from read_call(reader, calls)
        return
    name = yield from reader.word()
    if (yield from reader.optional("[CALL_ID]")):
        yield from skip_id(reader)
    yield from reader.optional("[ARGS]")
    yield from begin_call(reader, name, calls)


HERMES = Format(
    read_call,
    begin=("<tool_call>",),
    end=("</tool_call>", "}</tool_call>"),  # some models write a brace too many
)
"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`"""

JSON_LIST = Format(read_call, between=(",",), in_list=True)
"""`[{"name": ..., "arguments": {...}}, ...]`"""

LLAMA = Format(read_call, begin=("<|python_tag|>",), between=(";", ","), repeats=True, begins_output=True)
"""`{"name": ..., "parameters": {...}}`, with `;`, a comma or blanks between calls"""

QWEN_TAGS = Tags(
    name_end=">",
    argument="<parameter=",
    key_end=">",
    value_end="</parameter>",
    end="</function>",
    may_be_open=True,
    trims="\n",
)
QWEN = Format(
    tagged(QWEN_TAGS),
    begin=("<tool_call>",),
    each=("<function=",),
    end=("</tool_call>",),
    repeats=True,
    needs_begin=False,
)
"""`<tool_call><function=f><parameter=a>1</parameter></function></tool_call>`"""

GLM = Format(
    tagged(
        Tags(
            name_end="",
            argument="<arg_key>",
            key_end=r"</arg_key>\s*<arg_value>",
            value_end="</arg_value>",
            end="</tool_call>",
            is_known=True,
        )
    ),
    begin=("<tool_call>",),
    special=("</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)
"""`<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>`"""

MINIMAX_TAGS = Tags(
    name_end=">",
    argument="<parameter name=",
    key_end=">",
    value_end="</parameter>",
    end="</invoke>",
    may_be_open=True,
    is_known=True,
)
"""`<invoke name="f"><parameter name="a">1</parameter></invoke>`"""


def _dsml(section: str, *misspelt: str) -> Format:
    """DeepSeek's markup: `<｜DSML｜invoke name="f">`, for each argument `<｜DSML｜parameter name="a"
    string="true">x</｜DSML｜parameter>`, and `</｜DSML｜invoke>`, in a section."""
    return Format(
        tagged(
            Tags(
                name_end='">',
                argument='<｜DSML｜parameter name="',
                key_end=r'"(?:\s+string="(?P<kind>[^"]*)")?\s*>',
                value_end="</｜DSML｜parameter>",
                end="</｜DSML｜invoke>",
                may_be_open=True,
            )
        ),
        begin=tuple(f"<｜DSML｜{name}>" for name in (section, *misspelt)),
        each=('<｜DSML｜invoke name="',),
        end=(f"</｜DSML｜{section}>",),
        repeats=True,
        needs_begin=False,
        special=("｜DSML｜",),
    )


def _deepseek(call: Call, *each_end: str, before_name: str = "") -> Format:
    return Format(
        call,
        begin=("<｜tool▁calls▁begin｜>",),
        each=("<｜tool▁call▁begin｜>" + before_name,),
        each_end=(*each_end, "<｜tool▁call▁end｜>"),
        end=("<｜tool▁calls▁end｜>",),
        repeats=True,
        special=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"),
    )


_PYTHONIC = Format(pythonic, between=(",",), in_list=True, begins_output=True)

FORMATS: Mapping[str, Format] = {
    "deepseek_v3": _deepseek(
        named("\n", before_end="```json"), "```<｜tool▁call▁end｜>", before_name="function<｜tool▁sep｜>"
    ),
    "deepseek_v31": _deepseek(named("<｜tool▁sep｜>")),
    "deepseek_v32": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls", "toolcalls", "tool"),
    "ernie45": HERMES,
    "gemma4": Format(
        braced("<tool_call|>"),
        begin=("<|tool_call>call:", "<|tool_call>:"),
        special=("<|tool_call>", "<tool_call|>", MARK),
    ),
    "glm45": GLM,
    "glm47": GLM,
    "granite": JSON_LIST._replace(begin=("<|tool_call|>", "<tool_call>")),
    "granite4": HERMES,
    "hermes": HERMES,
    "hunyuan_a13b": JSON_LIST._replace(begin=("<tool_calls>",), end=("</tool_calls>",), in_reasoning=False),
    "kimi_k2": Format(
        named("<|tool_call_argument_begin|>", name=r"(?:functions\.)?([^:\s]+)\S*:\d+"),
        begin=("<|tool_calls_section_begin|>",),
        each=("<|tool_call_begin|>",),
        each_end=("<|tool_call_end|>",),
        end=("<|tool_calls_section_end|>",),
        repeats=True,
        special=("<|tool_call_argument_begin|>",),
    ),
    "llama3_json": LLAMA,
    "llama4_json": LLAMA,
    "llama4_pythonic": _PYTHONIC._replace(begin=("<|python_start|>",), end=("<|python_end|>",)),
    "longcat": HERMES._replace(begin=("<longcat_tool_call>",), end=("</longcat_tool_call>",)),
    "mimo": QWEN._replace(call=tagged(QWEN_TAGS._replace(trims=""))),
    "minimax_m2": Format(
        tagged(MINIMAX_TAGS),
        begin=("<minimax:tool_call>",),
        each=("<invoke name=",),
        end=("</minimax:tool_call>",),
        repeats=True,
        needs_begin=False,
    ),
    "mistral": Format(
        _mistral, begin=("[TOOL_CALLS]",), between=(",",), in_list=None, special=("[CALL_ID]", "[ARGS]")
    ),
    "olmo3": Format(
        pythonic, begin=("<function_calls>",), end=("</function_calls>",), repeats=True, begins_output=True
    ),
    "phi4_mini_json": JSON_LIST._replace(begin=("functools",)),
    "pythonic": _PYTHONIC,
    "qwen3_coder": QWEN,
    "qwen3_xml": QWEN,
    "seed_oss": QWEN._replace(begin=("<seed:tool_call>",), end=("</seed:tool_call>",)),
    "step3": Format(
        tagged(
            Tags(
                name_end='">',
                argument='<steptml:parameter name="',
                key_end='">',
                value_end="</steptml:parameter>",
                end="</steptml:invoke>",
                strips=True,
            )
        ),
        begin=("<｜tool_calls_begin｜>",),
        each=('<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="',),
        each_end=("<｜tool_call_end｜>",),
        end=("<｜tool_calls_end｜>",),
        repeats=True,
        special=("<｜tool_call_begin｜>", "<｜tool_sep｜>"),
    ),
    "step3p5": QWEN,
    "xlam": JSON_LIST._replace(
        begin=("```json", "```\n", "[TOOL_CALLS]", "<tool_call>"),
        end=("```", "</tool_call>"),
        begins_output=True,
    ),
}
