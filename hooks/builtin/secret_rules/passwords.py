"""Passwords and keys without a form of their own. The text before them shows them.

A value after any word for a secret is one if it looks random. After a word for a password, a value that
a person made up is one too: it has letters, and digits or signs among them. Words in Cyrillic letters are
here as the reading has them (`hooks.detect.dress.HOMOGLYPHS`).
"""

import re

from hooks.builtin.secret_rules.placeholders import is_placeholder, is_stand_in
from hooks.builtin.secret_rules.randomness import looks_random
from hooks.builtin.secret_rules.signs import (
    BEFORE,
    CLOSING,
    FEIGNED,
    OF_WHAT,
    OPENING,
    PLAINLY_SAYS,
    SAYS,
    any_of,
)
from hooks.detect.dress import HOMOGLYPHS
from hooks.detect.rules import Also, Rule

_PASSWORDS = (
    *("password", "passwd", "passwort", "passphrase", "passcode"),
    *("(?<![a-z])pass", "(?<![a-z])pwd", "(?<![a-z])pw", "kennwort", "identified by", "requirepass"),
    *("masterauth", "contraseña", "contrasena", "senha", "mot de passe", "parola", "wachtwoord", "lösenord"),
    *("adgangskode", "salasana", "şifre", "sandi", "mật khẩu", "hasło", "heslo", "пароль", "密码", "密碼"),
    *("パスワード", "비밀번호", "口令"),
)
_KINDS_OF_KEYS = (
    "secret|api|access|auth|private|encryption|signing|master|license|account|service|shared|session"
)
_OTHER_NAMES = (
    *("secret", rf"(?:{_KINDS_OF_KEYS})[ _-]?key", "apikey", "token", "credential", "credentials", "creds"),
    *("authorization", "(?<![a-z])auth", "schlüssel", "clé", "clave", "chave", "klucz", "ключ", "токен"),
    *("密钥", "密鑰", "令牌", "APIキー", "トークン"),
)
_PASSWORD = any_of(name.translate(HOMOGLYPHS) for name in _PASSWORDS)
_NAME = any_of(name.translate(HOMOGLYPHS) for name in (*_PASSWORDS, *_OTHER_NAMES))
_NEAR_PASSWORD = (
    r"password|passwd|passwort|passphrase|passcode|db_?pass|_pass|pass[:=\"']|pwd|pw[:= ]|kennwort"
    r"|identified by|requirepass|masterauth|contrase|senha|mot de passe|parola|wachtwoord|lösenord"
    r"|adgangskode|salasana|şifre|sandi|mật khẩu|hasło|heslo|пароль|密码|密碼|パスワード|비밀번호|口令"
).translate(HOMOGLYPHS)
_NEAR_NAME = "|".join(
    [
        _NEAR_PASSWORD
        + r"|secret|token|credential|creds|authorization|_auth|auth[=:\"']|schlüssel|clé|clave|chave",
        "klucz|ключ|токен|密钥|密鑰|令牌|キー|トークン".translate(HOMOGLYPHS),
        *(f"{kind}{between}key" for kind in _KINDS_OF_KEYS.split("|") for between in ("", " ", "_", "-")),
    ]
)
_SUFFIX = r"(?:(?-i:[A-Z_\d.-])[\w.-]{0,20}|[es])?"
"""The rest of a name: `password_of_db`, `tokenValue`."""
_SCHEME = r"(?:(?:bearer|basic|token|apikey|key|oauth)[ \t])?"
_NOT_ONE = (
    rf"(?:{FEIGNED}|(?<![a-z])id|Id|(?<!</)name|url|uri|file|path|size|count|length|version|endpoint|format|hint"
    rf"|policy|expir\w{{1,6}}|hash|label|header|public[ _-]?(?:key|token)"
    rf"|(?:[cx]srf|authenticity|verification)[ _-]?token|(?<=ssword)s"
    rf"|(?-i:Token(?:\.[A-Z]\w{{1,20}}){{1,3}}))"
    rf"{CLOSING}{SAYS}{OPENING}|(?-i:--- PASS: )|(?:password|passphrase)[ -](?:protected|encrypted|based)[ ]"
)
"""Names that contain a word for a secret and have another value."""
_VALUE = r"[!#-&(-+\-./0-9:=?-_a-z~]"
"""A character of a password: ASCII without quotes, braces and other characters between values."""
_LONG = 1024
"""Most characters of a password that are checked. A longer one ends at the first other character."""
_VARIABLE = re.compile(r"\$(?:(?P<name>[A-Za-z_]+)|[A-Za-z_]\w*(?:-|::.*|/\$.*))")
"""A variable of a program: $password, $parser->get_token(), $Config::NAME."""
_CALL = re.compile(
    r"[!&*]?[A-Za-z_][\w.]{2,}[(\[]|[^\s(]{1,40}\)\.[a-z_]|[@!&*$][A-Za-z_]\w*\.[A-Za-z_]\w*\Z"
)
"""The beginning of a call, the end of one, and an attribute: new(0, 8).sample, @parser.next2."""
_OF_PROGRAMS = re.compile(
    r"\\?-.*[a-z]{3}.*-[a-z].*|[@!#][a-z]+(?:[-_][a-z]+)*|%\w+%|[a-z_]+\([\w*, .]*\)|[A-Z]+/\d(?:\.\d)?"
    r"|(?:\d+:)?[vV]?\d+(?:\.\d+)+[\w.+~-]*"
    r"|[-+]?0[xX][\dA-Fa-f]{1,16}[uUlL]{0,3}|[&*]?(?:[A-Za-z_]\w*::)+\w+|https?://[^\s@]*|%[a-z]\W.*"
    r"|\d{3,4}(?:_[a-z]+\d{0,3}|_\d{1,4})+"
    r"|(?:\w+\.)*(?:[A-Z]{1,5}[a-z]*\d{0,5}(?:[A-Z][a-z]{2,}\d?)+|(?:[A-Z][a-z]{2,}\d?){2,})"
)
"""Options, variables, tags, calls, versions, numbers, URLs, formats, and names of types and migrations."""
_NEXT_FIELD = re.compile(r"&[\w.-]{1,40}=")


def password_length(text: str) -> int:
    """Return how many of the first characters of `text` look like a password that a tool made; 0: none. Marks
    and brackets of the sentence around a password are not part of it."""
    value = _alone(text)
    return len(value) if len(value) >= 8 and "..." not in text and _is_drawn(value) else 0


def human_length(text: str) -> int:
    """The same for a password that a person made up."""
    value = _alone(text)
    return len(value) if is_human(value) else 0


def _alone(text: str) -> str:
    """Return the value without a next field of an address, marks of a sentence and closing brackets."""
    field = _NEXT_FIELD.search(text)
    value = (text[: field.start()] if field else text).rstrip(".:?*\\")
    for opening, closing in ("()", "[]"):
        if opening not in value:
            value = value.rstrip(closing)
    return value.rstrip(".:?")


def _is_drawn(value: str) -> bool:
    if not looks_random(value) or _CALL.match(value) or _is_variable(value):
        return False
    return not (_OF_PROGRAMS.fullmatch(value) or is_placeholder(value))


def _is_variable(value: str) -> bool:
    found = _VARIABLE.fullmatch(value)
    return found is not None and not (found["name"] and looks_random(found["name"]))


_CODE = re.compile(
    r"\w*[\w.\]]\(.*|[\w.$]+\[.*|\$\{?[A-Za-z_]\w*\b.*[}:].*|.*(?:=>|->|::|://|\$\(|\$\{|\(\)).*"
    r"|[\w.-]+@[\w-]+\.[a-z]{2,}"
    r"|(?:\.{0,2}/|~/|[A-Za-z]:\\).*|[A-Za-z_][A-Za-z_\d]*(?:\.[A-Za-z_]\w*)+[!?]?|\w+=[^=].*"
)
"""Calls, places in lists, paths, addresses, attributes: texts of programs in the place of a password."""
_PLAIN = re.compile(
    r"""
    [\d.,:/+TZ-]+                                     # a number, a date, a time
  | \d+[a-zA-Z]{0,7}                                  # 30days
  | (?:\d+:)?[vV]?\d+(?:\.\d+)+[\w.+~-]*                # a version
  | (?:sha|aes|des|rsa|utf|base|u?int|float|n?(?:var)?char|string|bcrypt|argon|pbkdf|scrypt|oauth|https?
      |scram-sha|ipv|python|win|ripemd|hmac|blake|iso|text|latin|arg|param|str|type|var)+[-_]?\d+\w*
  | \d{3,4}(?:_[a-z]+\d{0,3}|_\d{1,4})+                 # a migration
  | (?:md|hs|rs|es|x|rc|ed|p|cp)-?\d{1,5}
  | 0x[\da-fA-F]+ | \#[\w:.-]+ | U\+[\dA-F]+ | [A-Z][A-Z_\d]*_[A-Z_\d]* | [a-z]+(?:[A-Z][a-z]+)+\d?
  | \w+:(?:[A-Z][a-z]+){2,}                           # a name of a namespace
  | &\w+ | [*&+-]\w+ | [@!\#][a-z]+(?:[-_][a-z]+)* | \\u?\w+ | --?[\w-]+ | \w+[*+]
    """,
    re.VERBOSE,
)
"""Other values: numbers, dates, versions, names of types and procedures, options."""
_WORDS_OF_PROGRAMS = re.compile(r"[a-z]+(?:[_.-][a-z]+)*[_.-]?\d{0,1}", re.IGNORECASE)
_DEFAULTS = re.compile(
    r"(?:test|demo|foo|bar|user|admin|changeme|value|item|key|field|input|new|old|name)\w?\d{0,2}", re.I
)


def is_human(value: str) -> bool:
    """Whether `value` has letters with digits or signs among them, and is no other kind of value."""
    core = value.rstrip("!?.,*")
    if not 6 <= len(value) <= 64 or "\\" in value or not _IS_MIXED(core):
        return False
    if is_stand_in(value) or _MARKS.search(value.lower()) or _is_other(value):
        return False
    if _CODE.fullmatch(value) or _CALL.match(value):
        return False
    return not ((core != value and _is_other(core)) or _is_variable(value) or is_placeholder(value))


def _is_other(value: str) -> bool:
    return bool(_PLAIN.fullmatch(value) or _WORDS_OF_PROGRAMS.fullmatch(value) or _DEFAULTS.fullmatch(value))


_IS_MIXED = re.compile(r"(?=.*[^\W\d_]).*[\d!@#$%^&*+]", re.DOTALL).match
_MARKS = re.compile(
    r"example(?!\d{3})|placeholder|your|changeme|(?<![a-z])the(?![a-z])|x{4}|#{4}|\*{3}|\.{3}"
)
"""Marks of placeholders, in lower case."""


def is_quoted_password(text: str) -> bool:
    """Whether the text between two quotes is a password: as `is_human`, also one with all kinds of signs."""
    return is_human(text) or has_many_signs(text)


def has_many_signs(text: str) -> bool:
    """Whether `text` has so many different signs that it is no word, expression or pattern."""
    signs = {char for char in text if not char.isalnum()}
    is_other = is_stand_in(text) or _EXPRESSION.search(text) or re.match(r"[\w.$]{2,}[(\[{]", text)
    return (
        len(signs) >= 6 and len(signs & _OF_PASSWORDS) >= 2 and any(map(str.isalpha, text)) and not is_other
    )


_OF_PASSWORDS = set("!#$%^&*@?~<>{}+¿¨")


_EXPRESSION = re.compile(
    r"://|\(\?|\\[dwsbnx]|\[\^|[a-zA-Z]-[zZ9]|\{\d*,|\{\{ |</|/>|=>|\|\||&&"
    r"|return|function|\)\.|\);|\(\)|\[\]"
)
"""Signs of patterns, templates, pages and programs."""

_SAID = rf"(?:{OF_WHAT}{CLOSING}{SAYS}{OPENING}|{CLOSING}[ \t]){_SCHEME}"
_TOLD = rf"{_NAME}{_SUFFIX}{_SAID}"
_HUMAN_SAID = rf"{_PASSWORD}{_SUFFIX}(?:{OF_WHAT}{CLOSING}{PLAINLY_SAYS}{OPENING}|{CLOSING}[ \t])"
PASSWORD = Rule(
    "PASSWORD",
    f"{BEFORE}{_VALUE}{{6,{_LONG}}}+",
    length=password_length,
    near=_NEAR_NAME,
    behind=_TOLD,
    also=Also(_HUMAN_SAID, human_length),
    unless=_NOT_ONE,
)
LONG_PASSWORD = Rule(
    "PASSWORD",
    f"{BEFORE}{_VALUE}{{{_LONG}}}",
    check=looks_random,
    near=_NEAR_NAME,
    behind=_TOLD,
    until=f"(?!{_VALUE})",
)
_QUOTES = r"""["'`]"""
QUOTED_PASSWORD = Rule(
    "PASSWORD",
    rf"(?<={_QUOTES})[^\s\"'`]{{6,64}}+(?={_QUOTES})",
    check=is_quoted_password,
    near=_NEAR_NAME,
    behind=rf"{_NAME}{_SUFFIX}[\[\]\d]{{0,4}}(?:{CLOSING}{SAYS}[ ]{{0,4}}@?|[ ]){_QUOTES}",
    unless=_NOT_ONE,
)


SIGNS = Rule(
    "PASSWORD",
    r"(?<=[ =:])[^\s\"'`;]{8,64}+(?=[\"'`,]{0,2}(?:\n|\Z))",
    check=has_many_signs,
    near=_NEAR_NAME,
    behind=rf"{_NAME}{_SUFFIX}[ ]?:?[=:][ ]?",
    unless=_NOT_ONE,
)
"""A value of any characters that ends its line."""


def is_shown(text: str) -> bool:
    """Whether `text` is a real password and no placeholder, as `****`, `${PASSWORD}` or `password`."""
    return not (is_stand_in(text) or _MARKS.search(text.lower()) or _NAMED.fullmatch(text) or _is_open(text))


_NAMED = re.compile(
    r"(?:[a-z]+_)*(?:key|password|passwd|secret|token|pass|pwd)(?:_[a-z]+)*|\d{1,5}", re.IGNORECASE
)


def _is_open(text: str) -> bool:
    return any(text.count(opening) != text.count(closing) for opening, closing in ("[]", "()", "{}"))


def _dsn_length(text: str) -> int:
    value = _alone(text)
    return len(value) if value and is_shown(value) and not _CODE.fullmatch(value) else 0


def _login_length(text: str) -> int:
    value = _alone(text)
    return len(value) if is_shown(value) and (is_human(value) or password_length(value)) else 0


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
    length=_dsn_length,
)
LOGIN = Rule(
    "PASSWORD",
    rf"(?<=[:\"']){_VALUE}{{4,128}}+(?!{_VALUE})",
    near=r"curl|wget|http|--user",
    behind=r"""[ ](?:-u|--user)[ =]{0,3}["']?[\w.@+-]{0,64}:["']?""",
    length=_login_length,
)
"""The password of a user's login on a command line: `curl -u anna:...`."""
KEY_AS_LOGIN = Rule(
    "PASSWORD",
    rf"(?<=[ =\"'])(?:(?!:){_VALUE}){{8,128}}+(?=:[\s\"'])",
    near=LOGIN.near,
    behind=r"""[ ](?:-u|--user)[ =]{0,3}["']?""",
    length=password_length,
)
"""A key in the place of the user, with no password: `curl -u KEY:`."""
PASSWORDS = (URL_PASSWORD, DSN_PASSWORD, LOGIN, KEY_AS_LOGIN, PASSWORD, LONG_PASSWORD, QUOTED_PASSWORD, SIGNS)
