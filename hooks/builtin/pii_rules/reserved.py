"""Addresses that are nobody's: of examples, of programs, of remotes, and of machines in a local network.

Programs, their settings and their manuals are full of them. They are values by their form, and carry no
person's data.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import replace

from hooks.builtin.pii_rules.addresses import EMAIL, UNSPECIFIED
from hooks.detect.rules import Rule

_NO_PERSON = re.compile(r"(?:.*\+)?(?:no|(?:do[-_.]?)?not)[-_.]?reply(?:[-_.+].*)?|git|hg|svn", re.IGNORECASE)
"""Names before the @: a program that reads no answers, and the user of a remote's server."""
_NO_HOST = re.compile(
    r"(?:.*\.)?(?:example\.(?:com|net|org)|example|test|invalid|localhost|noreply\.\w+(?:\.\w+)*"
    r"|openssh\.com|libssh\.org|gserviceaccount\.com"
    r"|(?:(?:your|my)[-_]?(?:domain|company|site)|domain)\.(?:com|net|org|tld))"
    r"|v?\d+\.\d+[.-].*",  # the version of a package: core@7.0.0-beta.two
    re.IGNORECASE,
)
"""Hosts of examples (RFC 2606, RFC 6761, and `yourdomain.com`), of programs, and in names of ciphers."""
_PATH = r"(?::(?:[/~]|\.{1,2}/|[\w.-]{1,40}/|[\w-]{1,40}\.git(?![^\W_])))?+"
"""The beginning of a path on the host, in a remote as `ann@host.org:acme/app.git`."""
_REMOTE = (
    r"(?<![^\W_])(?:(?:git|ssh|svn|hg|rsync|sftp|scp)(?:\+[a-z]{2,5})?://|[a-z+]{2,10}://[^\s/@]{0,64}:"
    r"|(?:ssh|sftp|scp|mosh|ssh-copy-id)(?:[ ]{1,2}-[\w.=/~-]{1,40}(?:[ ][\w.=/~]{1,40})?){0,3}[ ]{1,2})"
)
"""Text before the user of a machine or his password: `ssh://`, `ssh -p 22 `, `https://ann:`."""
_BEFORE_REPLY = r"(?<![^\W_])not?[-_.](?:reply[-_.+])?"
"""Text before the rest of `no-reply@`."""
_GLOBAL = ipaddress.ip_network("2000::/3")
_WIDE = {4: 8, 6: 20}
"""By version, the bits of a network that is no machine's and no company's."""


def is_reserved_email(text: str) -> bool:
    """Whether no person has the address: its host is for examples, or its name is a program's."""
    name, _, host = text.partition("@")
    return _NO_PERSON.fullmatch(name) is not None or _NO_HOST.fullmatch(host) is not None


def is_reserved_ip(text: str) -> bool:
    """Whether the address is no machine's of the internet: loopback, private, link-local, shared, for
    documentation, a netmask, multicast, unspecified; or a sample or a version, as 1.2.3.4: four numbers of
    one digit, which public name servers have too. A network counts as its address, unless it is wide."""
    written, _, bits = text.partition("/")
    address = ipaddress.ip_address(written.partition("%")[0])
    if bits and int(bits) <= _WIDE[address.version]:
        return True
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return not address.is_global or address not in _GLOBAL
        address = address.ipv4_mapped
    return not address.is_global or address.is_multicast or max(address.packed) < 10


def _email_length(text: str) -> int:
    """Return the length of a person's address; 0: it is a file's name, nobody's, or a remote."""
    assert EMAIL.check is not None
    address, _, path = text.partition(":")
    is_own = not path and EMAIL.check(address) and not is_reserved_email(address)
    return len(text) if is_own else 0


_OWN_EMAIL = replace(
    EMAIL,
    pattern=EMAIL.pattern + _PATH,
    check=None,
    length=_email_length,
    unless=rf"(?:{_REMOTE}|{_BEFORE_REPLY})",
)


def without_reserved(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules, of which none finds a reserved address."""
    return [_without_reserved(rule) for rule in rules if rule is not UNSPECIFIED]


def _without_reserved(rule: Rule) -> Rule:
    if rule is EMAIL:
        return _OWN_EMAIL
    if rule.entity != "IP_ADDRESS":
        return rule
    check = rule.check
    return replace(rule, check=lambda text: (check is None or check(text)) and not is_reserved_ip(text))
