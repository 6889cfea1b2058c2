"""Addresses of e-mail and of machines."""

import ipaddress
import re

from hooks.builtin.pii_rules.family import words_near
from hooks.detect.rules import Rule, words

_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|pdf|js|ts|css|py|md|json|xml|html?|txt|zip|exe|dll|so)\Z", re.IGNORECASE
)
_LABEL = r"[^\W_](?:[^\W_]|-(?!\.)){0,62}"
EMAIL = Rule(
    "EMAIL_ADDRESS",
    rf"(?<!\w)\w[\w.+%&'-]{{0,63}}@(?:{_LABEL}\.){{1,8}}(?:(?i:xn--[a-z\d-]{{2,59}})|\p{{L}}{{2,24}})(?![^\W_])",
    check=lambda text: not _FILE.search(text),
)

_NUMBERED = words(
    *("v(?:er(?:sion)?)?", "release", "build", "firmware", "patch", "update", "section", "chapter"),
    *("clause", "figure", "table", "step", "appendix", "paragraph", "oid", "revision", "rev", "sdk"),
    *("policy", "standards", "standard"),
)
_PRODUCT = r"(?<![^\W_])(?-i:[A-Z][A-Za-z]{0,30}|curl|wget|python|java|ruby|perl|php|node|nginx|openssl|git)/"
_COMPARED = r"[=~<>!]=[ ]?|~>[ ]?|\^|\d-\d{0,3}\.\d{1,3}[ ]"
"""A comparison of versions, or numbers of a path in a drawing."""
_CHANGED = rf"{words('(?:bump|upgrad|updat|downgrad|migrat|releas)(?:e|es|ed|ing|s)?')}[^\n]{{1,48}}"
_PATH = r"(?<=://[\w.:-]{1,48}(?:/[\w.%~-]{1,24}){0,4})/"
_OF_NUMBER = rf"(?:§|{_NUMBERED})\W{{0,4}}(?:(?:is|to|no|number)\W{{1,3}})?"
_NO_ADDRESS = rf"(?:{_PRODUCT}|{_COMPARED}|{_OF_NUMBER}|{_CHANGED}|{_PATH})"
"""Text before four numbers that makes them a version, a section, or a part of a name or of an address."""
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_PREFIX4 = r"(?:/(?:3[0-2]|[12]?\d)(?![^\W_]))?"
_LENGTH = r"/(?:12[0-8]|1[01]\d|[1-9]?\d)(?![^\W_])"
_PREFIX6 = f"(?:{_LENGTH})?"
_FOUR = rf"(?<![^\W_])(?<![^\W_][.-])(?<![^\W\d_]_)(?:{_OCTET}\.){{3}}{_OCTET}"
_QUAD = rf"{_FOUR}(?![^\W_])(?![.-][^\W_]){_PREFIX4}"
_RUN = rf"{_FOUR}(?:(?:\.\d{{1,5}}){{1,12}}|-(?:{_OCTET}\.){{3}}{_OCTET})(?![^\W_])"
"""Four numbers and more: a port, as tcpdump writes it, further addresses, or the other end of a range."""
_KNOWN = {"1.1.1.1", "1.0.0.1", "8.8.8.8", "8.8.4.4", "9.9.9.9", "4.2.2.2", "0.0.0.0"}


def is_clear_ipv4(text: str) -> bool:
    """Whether `text` is hardly a version: the first number is above 31, or two others are, it begins with 10
    or has a prefix. A version may end with zeros."""
    address, slash, _ = text.partition("/")
    first, *rest = [int(octet) for octet in address.split(".")]
    is_high = (first > 31 and any(rest)) or sum(octet > 31 for octet in rest) > 1
    return bool(slash) or first == 10 or is_high or address in _KNOWN


def is_no_oid(text: str) -> bool:
    """Whether `text` is no object identifier: its first number is above 2, or it is 0 or 1 and the second one
    is above 39 (X.660). A range is none."""
    first, second, *_ = text.split(".")
    return int(first) > 2 or (int(first) < 2 and int(second) > 39) or "-" in text


def is_clear_run(text: str) -> bool:
    return is_no_oid(text) and any(map(is_clear_ipv4, addresses_in(text)))


def addresses_in(text: str) -> list[str]:
    """The addresses of a text that a rule for `IP_ADDRESS` matches: of a run, each four numbers of a byte."""
    numbers = re.split("[.-]", text)
    if len(numbers) <= 4 or not all(map(str.isdecimal, numbers)):
        return [text]
    fours = (numbers[i : i + 4] for i in range(0, len(numbers) - 3, 4))
    return [".".join(four) for four in fours if all(re.fullmatch(_OCTET, number) for number in four)]


_MACHINE = words_near(
    "ip|ips|ipv4|ipv6|addr|addrs|address|addresses|host|hosts|hostname|localhost|server|servers|dns|ping|resolver"
    "|gateway|subnet|network|connect|connected|connecting|connection|from|to|via|at|on|route|curl|ssh|http|https"
    "|port|bind|listen|listening|client|proxy|peer|node|src|dst|source|dest|destination|login|nameserver|inet"
    "|unreachable|machine|device|endpoint|url|remote|loopback"
)
IPV4 = (
    Rule("IP_ADDRESS", _QUAD, check=is_clear_ipv4, unless=_NO_ADDRESS),
    Rule("IP_ADDRESS", _QUAD, unless=_NO_ADDRESS, near=_MACHINE),
    Rule("IP_ADDRESS", _QUAD, unless=_NO_ADDRESS, behind=r"[^\W_]/"),
    Rule("IP_ADDRESS", _RUN, check=is_clear_run, unless=_NO_ADDRESS),
    Rule("IP_ADDRESS", _RUN, check=is_no_oid, unless=_NO_ADDRESS, near=_MACHINE),
)


def is_ipv6(text: str) -> bool:
    """Whether `text` is an address with a group of more than two digits. `::1` may be code, and eight groups
    of two digits are mostly other bytes."""
    address = _bare(text)
    return address is not None and any(len(group) > 2 and "." not in group for group in address.split(":"))


def is_any_ipv6(text: str) -> bool:
    return _bare(text) is not None and any(map(str.isdecimal, text))


def _bare(text: str) -> str | None:
    """Return the address in `text` without its zone and its prefix; None: it is none."""
    address = text.partition("/")[0].partition("%")[0]
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return None
    begun = address[:-2]
    if address.endswith("::") and "/" not in text and (begun.isdecimal() or not begun):
        return None  # 100:: is mostly a number and two colons
    return address


_GROUPS = rf"(?:[\dA-Fa-f]{{0,4}}:){{2,7}}(?:{_OCTET}(?:\.{_OCTET}){{3}}|[\dA-Fa-f]{{1,4}})?"
_ZONE = r"(?:%[\dA-Za-z][\dA-Za-z._~-]{0,15}(?<![._~-]))?"
_HOST = r"[a-z][\w-]{0,30}\d"
"""A name with a number, as web01."""
_SURE_ZONE = r"%[\dA-Za-z]{1,16}(?![^\W_])"
UNSPECIFIED = Rule(
    "IP_ADDRESS", r"::(?![\w:])", behind=rf"(?<!\w)(?:(?:ipv6|src|dst|unspecified)[ =]|{_HOST}/)"
)
_IPV6 = rf"(?<![\w:.]){_GROUPS}(?![\w:])(?!\.\d){_ZONE}{_PREFIX6}"
IPV6 = (
    Rule("IP_ADDRESS", _IPV6, check=is_ipv6),
    Rule("IP_ADDRESS", rf"(?<!\[){_IPV6}(?!\])", check=is_any_ipv6, near=_MACHINE),
    Rule("IP_ADDRESS", rf"(?<=/){_GROUPS}(?![\w:])", check=is_any_ipv6, behind=r"[^\W_]/"),
    # In brackets, in front of a port, or with a zone or a prefix, also a short address is one.
    Rule("IP_ADDRESS", rf"(?<=//\[){_GROUPS}(?=(?:%|\]))", check=is_any_ipv6),
    Rule("IP_ADDRESS", rf"(?<=\[){_GROUPS}(?=\]:\d)", check=is_any_ipv6),
    Rule("IP_ADDRESS", rf"(?<![\w:.]){_GROUPS}(?=[%/])(?:{_ZONE}{_LENGTH}|{_SURE_ZONE})", check=is_any_ipv6),
    UNSPECIFIED,
    Rule("IP_ADDRESS", rf"(?<![\s\S]){_GROUPS}(?=\.?\s{{0,2}}\Z)", check=is_any_ipv6),
)  # fmt: skip

_BYTE, _WORD = r"[\dA-Fa-f]{2}", r"[\dA-Fa-f]{4}"


def is_mac(text: str) -> bool:
    """Whether `text` is the address of one machine: not all zeros, and not the one that means all machines.
    Only digits without a colon are mostly dates and times."""
    signs = re.sub("[:.-]", "", text).upper()
    return len(set(signs)) > 1 and (":" in text or not signs.isdecimal())


MAC = Rule(
    "MAC_ADDRESS",
    rf"(?<![^\W_])(?<![^\W_][:.-])(?:{_BYTE}([:-]){_BYTE}(?:\1{_BYTE}){{4}}|(?<!\.)(?:{_WORD}\.){{2}}{_WORD})"
    r"(?![^\W_])(?![:.-][^\W_])",
    check=is_mac,
)
