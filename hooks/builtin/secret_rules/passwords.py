"""Passwords and keys without a form of their own. The text before them shows them."""

import re

from hooks.builtin.secret_rules.randomness import looks_random
from hooks.detect.rules import Rule

_NAME = (
    r"(?:pass(?:word|wd|wort|phrase|code)|(?<![a-z])(?:pass|pwd|pw)|contraseña|senha|mot de passe|wachtwoord"
    r"|hasło|пароль|密码|密碼|パスワード|비밀번호|secret"
    r"|(?:secret|api|access|auth|private|encryption|signing|master|license|account)[ _-]?key|apikey"
    r"|token|credentials?|authorization)"
)
_OF_WHAT = r"(?:[ ](?:for|of|to|on)[ ][\w .@'-]{1,40}|[ ]?\([^()\n]{1,30}\))?"
_CLOSING = r"""["'`*”’)\\ \t]{0,40}"""
_SAYS = r"(?:=>|:=|==?|[:：|>,]|(?:is|was|ist|es|est)(?=[: \t])|是|は)"
_OPENING = r"""["'`*“‘(\\: \t\r\n]{0,40}(?:```\w{0,12}\r?\n)?"""
_SCHEME = r"(?:(?:bearer|basic|token)[ \t])?"
_VALUE = r"[!#-&(-+\-./0-9:=?-_a-z~]"
"""A character of a password: ASCII without quotes, brackets and other characters between values."""
_LONG = 1024
"""Most characters of a password that are checked. A longer one ends at the first other character."""
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]+)|[A-Za-z_]\w*(?:-|::.*))")
"""A variable of a program: $password, $parser->get_token(), $Config::NAME."""


def password_length(text: str) -> int:
    """Return how many of the first characters of `text` look like a password; 0: none. Marks and brackets of
    the sentence around a password are not part of it."""
    value = text.rstrip(".:?*\\")
    for opening, closing in ("()", "[]"):
        if opening not in value:
            value = value.rstrip(closing)
    value = value.rstrip(".:?")
    return len(value) if len(value) >= 8 and looks_random(value) and not _is_variable(value) else 0


def _is_variable(value: str) -> bool:
    found = _VARIABLE.fullmatch(value)
    return found is not None and not (found["name"] and looks_random(found["name"]))


# The look-behind of 200 excludes places far into a long word, where every "=" could begin a password.
_BEFORE = r"""(?<=["'`*“‘(\\ \t\n=:：|>,是は])(?<![!-~]{200})(?![*(\[=:])"""
_TOLD = rf"{_NAME}(?:{_OF_WHAT}{_CLOSING}{_SAYS}{_OPENING}|{_CLOSING}[ \t]){_SCHEME}"
PASSWORD = Rule("PASSWORD", f"{_BEFORE}{_VALUE}{{8,{_LONG}}}+", length=password_length, behind=_TOLD)
LONG_PASSWORD = Rule(
    "PASSWORD", f"{_BEFORE}{_VALUE}{{{_LONG}}}", check=looks_random, behind=_TOLD, until=f"(?!{_VALUE})"
)

_STAND_IN = re.compile(
    r"[*•.xX]+|\$\{?\w+\}?|\$\(.*|%\w|%\w+%|%\(\w+\)\w?|\{.*|<.*|\[.*|(?i:pass(?:word|wd)?|pwd|secret)"
)


def is_shown(text: str) -> bool:
    """Whether `text` is a real password and no placeholder, as `****`, `${PASSWORD}` or `password`."""
    return not _STAND_IN.fullmatch(text)


URL_PASSWORD = Rule(
    "CONNECTION_STRING",
    r"""(?<=:)(?!\d{1,5}[?#])[^\s/"'<>]{1,128}(?=@[\w.\[-])""",
    behind=r"""://[^\s:/@"'<>]{0,64}:""",
    check=is_shown,
)
DSN_PASSWORD = Rule(
    "CONNECTION_STRING",
    r"""(?<=[= ])[^;\s"',()]{1,128}+(?![^;\s"'])""",
    near=r"(?:server|source|host|uid|user id|user|username|database|catalog|dbname|endpoint)[ ]?=",
    behind=r"(?:password|pwd)[ ]?=[ ]?",
    check=is_shown,
)
PASSWORDS = (URL_PASSWORD, DSN_PASSWORD, PASSWORD, LONG_PASSWORD)
