"""The tokens of readings: what each kind looks like in a text, and the character that it reads as."""

import html
import re
from functools import lru_cache

_HEX = "[0-9a-fA-F]"
_NEXT = rf"(?:%[89abAB]{_HEX})"
"""A further byte of a character in UTF-8."""
ESCAPES = {
    # JSON's escapes, also within a string of JSON, where backslashes are doubled and quotes have three.
    "pair": rf"\\{{1,3}}u[dD][89abAB]{_HEX}{{2}}\\{{1,3}}u[dD][c-fC-F]{_HEX}{{2}}",
    "unfinished_pair": (
        rf"\\{{1,3}}u[dD][89abAB]{_HEX}{{2}}(?:\\{{1,3}}(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?\Z"
    ),
    "code": rf"\\{{1,3}}(?:u(?:{_HEX}{{4}}|\{{{_HEX}{{1,6}}\}})|x{_HEX}{{2}})",
    "unfinished_escape": rf"\\{{1,3}}(?:u(?:{_HEX}{{0,3}}|\{{{_HEX}{{0,6}})|x{_HEX}?)?\Z",
    "letter": r"""\\{1,3}[nrt"/]""",
    "backslash": r"(?<!\\)\\\\(?!\\)",
    # RFC 3986, also where the percent sign is encoded again. Three and four bytes are UTF-8.
    "bytes": rf"%(?:[cC][2-9a-fA-F]|[dD]{_HEX}|[eE]{_HEX}{_NEXT}|[fF][0-4]{_NEXT}{_NEXT}){_NEXT}",
    "unfinished_bytes": rf"%(?:[c-fC-F](?:{_HEX}{_NEXT}{{0,2}}(?:%[89abAB]?)?)?)?\Z",
    "unfinished_percent": rf"%(?:25){{0,2}}{_HEX}?\Z",
    "percent": rf"%(?:25){{0,2}}(?:0[9aAdD]|[2-7]{_HEX})",
    # HTML's character references, also where the ampersand is one, which may be all of it or its beginning.
    "unfinished_entity": (
        rf"&(?:amp;){{0,2}}(?:#(?:[0-9]{{0,6}}|[xX]{_HEX}{{0,5}})|[A-Za-z]{{0,16}}[0-9]?)?\Z"
    ),
    "entity": rf"&(?:amp;){{0,2}}(?:#(?:[0-9]{{1,6}}|[xX]{_HEX}{{1,5}})|[A-Za-z]{{2,16}}[0-9]?);",
}
OF_ADDRESSES = {
    "unfinished_entity": (
        rf"&(?:amp;){{0,2}}(?:#(?:[0-9]{{0,19}}|[xX]{_HEX}{{0,18}})|[A-Za-z]{{0,16}}[0-9]?)?\Z"
    ),
    "number": rf"&(?:amp;){{0,2}}#(?:0{{0,12}}[0-9]{{1,7}}(?![0-9])|[xX]0{{0,12}}{_HEX}{{1,6}}(?!{_HEX}));?",
    "punctuation": r"\\[:.?#@=_~-]",
}
OF_ESCAPES = r"""\\(?=[\\uxnrt"/]|\Z)|%(?=[0-9a-fA-F]|\Z)|&(?=[#A-Za-z]|\Z)"""
"""The beginning of a token of `ESCAPES`, with the next character: a cheap check."""
OF_PUNCTUATION = r"\\(?=[:.?#@=_~-])"
OF_TAGS = r"<(?=[A-Za-z/\\]|\Z)"
OF_BETWEEN = r'(?<="):(?=[ \dtfn-]|\Z)|\](?=\(|\Z)'
BLANK = "\u115f\u1160\u180e\u2800\u3164\uffa0"
"""Characters that look like spaces, though Unicode counts them as letters, symbols or format characters."""
_TAG = r"<(?=[^<>]{1,62}>)(?:\\{0,3}/)?"
_ATTRIBUTES = r"""(?:[^<>\\]|\\{1,3}["/])*"""
MARKUP = {
    "block": rf"{_TAG}(?:br|p|li|[uo]l|t[dhr]|div|h\d)\b{_ATTRIBUTES}>",
    "tag": rf"{_TAG}[A-Za-z]{_ATTRIBUTES}>",
    "unfinished_tag": rf"<(?=[^<>]{{0,63}}\Z)(?:\\{{0,3}}/)?(?:[A-Za-z]{_ATTRIBUTES})?\\{{0,3}}\Z",
    "emphasis": r"[*_~`]",
    "blank": f"[{BLANK}]",
}
UNSEEN = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
IS_UNSEEN = re.compile(f"[{UNSEEN}]").fullmatch
BETWEEN = {
    "link": r"\]\([^\s()\\]{1,60}\)",
    "unfinished_link": r"\](?:\([^\s()\\]{0,60})?\Z",
    "unseen": f"[{UNSEEN}]",  # a space here; the written text covers one within a word
    "value": r'(?<="):[ ]?(?:-?\d[\d.]{0,15}|true|false|null)(?=[,}\s])',
    "unfinished_value": r'(?<="):[ ]?(?:-?\d[\d.]{0,15}|-|t(?:ru?e?)?|f(?:al?s?e?)?|n(?:ul?l?)?)?\Z',
}
_RUN = r"[\w/+=-]"
WITHIN = {
    # Characters and line breaks inside one value. Each part of a wrapped value has a digit, or a small letter
    # before a capital one.
    "unfinished_hidden": f"[{UNSEEN}]{{1,7}}\\Z",
    "hidden": f"[{UNSEEN}]{{1,8}}",
    "wrap": rf"(?<={_RUN})\r?\n[ \t]{{1,32}}(?={_RUN}{{0,23}}(?:{_RUN}?\d|[a-z][A-Z]))",
    "unfinished_wrap": rf"(?<={_RUN})(?:\r|\r?\n(?:[ \t]{{1,32}}{_RUN}{{0,24}})?)\Z",
}
IS_VALUE_BEFORE = re.compile(r"(?:\d|[a-z][A-Z])[\w/+=.~-]{0,23}\Z").search
GROUP_BEFORE = re.compile(r"\d([ -])\d{2,6}\Z").search
"""A group of digits after another one. A line break after it reads as the sign between the two."""
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "/": "/"}
READ = {
    "backslash": "\\",
    "value": ":",
    "link": "]",
    **dict.fromkeys(("block", "blank", "unseen"), " "),
    **dict.fromkeys(("tag", "emphasis"), "\u2060"),
    **dict.fromkeys(("hidden", "wrap"), ""),
}


@lru_cache(4096)
def read(kind: str, token: str) -> str:
    if kind == "letter":
        return _LETTERS[token[-1]]
    if kind == "code":
        code = int(token.lstrip("\\ux{").rstrip("}"), 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code <= 0xDFFF else "\ufffd"
    if kind == "pair":
        codes = "".join(re.findall("u(.{4})", token))
        return bytes.fromhex(codes).decode("utf-16-be")
    if kind == "percent":
        return chr(int(token[-2:], 16))
    if kind == "bytes":
        return bytes.fromhex(token.replace("%", "")).decode("utf-8", "replace")
    if kind == "punctuation":
        return token[1:]
    if kind in ("entity", "number"):
        return html.unescape(f"&{token.rpartition('&')[2].replace('amp;', '') or 'amp;'}")
    return READ[kind]
