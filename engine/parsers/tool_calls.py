"""The formats in which families of models write tool calls. Parsers have vLLM's names."""

from engine.parsers.json_call import begin_call, read_call, skip_id
from engine.parsers.json_reader import NotACallError, Reader
from engine.parsers.scan import Calls, Scan, at, next_call, skip
from engine.parsers.tape import CONTENT, Tape

PYTHON_TAG = "<|python_tag|>"


def hermes(tape: Tape, calls: Calls) -> Scan[None]:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them (Hermes, Qwen)."""
    while opening := (yield from next_call(tape, calls, "<tool_call>")):
        num_before = calls.count
        try:
            yield from read_call(tape, opening, calls)
        except NotACallError:
            if calls.count == num_before:
                tape.give(opening, CONTENT)
                continue
        yield from skip(tape, "</tool_call>", "}</tool_call>")  # some models write a brace too many


def llama3_json(tape: Tape, calls: Calls) -> Scan[None]:
    """`{"name": ..., "parameters": {...}}`, with `;`, a comma or blanks between calls (Llama 3.1 and later).
    Calls are the whole output, or follow `<|python_tag|>`."""
    yield from _llama3_calls(tape, calls, (yield from at(tape, PYTHON_TAG)))
    yield from llama3_marked(tape, calls)


def llama3_marked(tape: Tape, calls: Calls) -> Scan[None]:
    """The calls that follow `<|python_tag|>`."""
    while opening := (yield from next_call(tape, calls, PYTHON_TAG)):
        yield from _llama3_calls(tape, calls, opening)


def _llama3_calls(tape: Tape, calls: Calls, opening: int) -> Scan[None]:
    num_before = calls.count
    try:
        yield from read_call(tape, opening, calls)
        while True:
            yield from read_call(tape, (yield from at(tape, ";", ",")), calls)
    except NotACallError:
        if calls.count == num_before:
            tape.give(opening, CONTENT)


def mistral(tape: Tape, calls: Calls) -> Scan[None]:
    """`[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`. Since Mistral's eleventh tokenizer, each call
    is `[TOOL_CALLS]name[ARGS]{...}`."""
    while opening := (yield from next_call(tape, calls, "[TOOL_CALLS]")):
        num_before = calls.count
        try:
            reader = Reader(tape, opening)
            match (yield from reader.peek()):
                case "[":
                    yield from _mistral_list(tape, reader.position + 1, calls)
                case "{":
                    yield from read_call(tape, opening, calls)
                case _:
                    yield from _mistral_named(reader, calls)
        except NotACallError:
            if calls.count == num_before:
                tape.give(opening, CONTENT)


def _mistral_list(tape: Tape, position: int, calls: Calls) -> Scan[None]:
    yield from read_call(tape, position, calls)
    while separator := (yield from at(tape, ",")):
        yield from read_call(tape, separator, calls)
    yield from skip(tape, "]")


def _mistral_named(reader: Reader, calls: Calls) -> Scan[None]:
    name = yield from reader.word()
    if (yield from reader.optional("[CALL_ID]")):
        yield from skip_id(reader)
    yield from reader.optional("[ARGS]")
    yield from begin_call(reader, name, calls)
