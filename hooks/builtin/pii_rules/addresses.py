"""Addresses of e-mail and of machines."""

import ipaddress
import re

from hooks.detect.rules import Rule, words

_FILE = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|pdf|js|ts|css|py|md|json|xml|html?|txt|zip|exe|dll|so)", re.IGNORECASE
)
_LABEL = r"[^\W_](?:[^\W_]|-(?!\.)){0,62}"
EMAIL = Rule(
    "EMAIL_ADDRESS",
    rf"(?<!\w)\w[\w.+%&'-]{{0,63}}@(?:{_LABEL}\.){{1,8}}(?:(?i:xn--[a-z\d-]{{2,59}})|\p{{L}}{{2,24}})(?![^\W_])",
    check=lambda text: not _FILE.search(text),
)

_NUMBERED = words(
    *("v(?:er(?:sion)?)?", "release", "build", "firmware", "patch", "update", "section", "chapter"),
    *("clause", "figure", "table", "step", "appendix", "paragraph", "oid"),
)
_NO_ADDRESS = rf"(?:§|{_NUMBERED})\W{{0,4}}(?:(?:is|to|no|number)\W{{1,3}})?"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = Rule(
    "IP_ADDRESS",
    rf"(?<![^\W_])(?<![^\W_][./-])(?:{_OCTET}\.){{3}}{_OCTET}(?![^\W_])(?![.-][^\W_])",
    unless=_NO_ADDRESS,
)


def is_ipv6(text: str) -> bool:
    """Whether `text` is an address with a group of more than two digits. `::1` may be code, and eight groups
    of two digits are mostly other bytes."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return any(len(group) > 2 and "." not in group for group in text.split(":"))


IPV6 = Rule(
    "IP_ADDRESS",
    rf"(?<![\w:.])(?:[\dA-Fa-f]{{0,4}}:){{2,7}}(?:{_OCTET}(?:\.{_OCTET}){{3}}|[\dA-Fa-f]{{1,4}})?"
    r"(?![\w:])(?!\.\d)",
    check=is_ipv6,
)

_BYTE, _WORD = r"[\dA-Fa-f]{2}", r"[\dA-Fa-f]{4}"
MAC = Rule(
    "MAC_ADDRESS",
    rf"(?<![^\W_])(?<![^\W_][:.-])(?:{_BYTE}([:-]){_BYTE}(?:\1{_BYTE}){{4}}|(?:{_WORD}\.){{2}}{_WORD})"
    r"(?![^\W_])(?![:.-][^\W_])",
    check=lambda text: ":" in text or not re.sub("[.-]", "", text).isdecimal(),
)
