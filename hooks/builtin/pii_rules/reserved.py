"""Addresses that are nobody's: of examples, of programs, of remotes, and of machines in a local network.

Programs, their settings and their manuals are full of them. They are values by their form, and carry no
person's data.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import replace

from hooks.builtin.pii_rules.addresses import EMAIL, UNSPECIFIED, addresses_in
from hooks.detect.rules import Rule

_NO_PERSON = re.compile(r"(?:no|do[-_.]?not)[-_.]?reply|git|hg|svn", re.IGNORECASE)
"""Names before the @: a program that reads no answers, and the user of a remote's server."""
_ROLE = (
    r"(?:git|hg|svn|ssh|sftp|deploy|deployer|root|admin|ubuntu|debian|centos|fedora|ec2-user|vagrant|pi|user)"
)
"""Names of users that machines have and persons do not."""
_NO_HOST = re.compile(
    r"(?:.*\.)?(?:example\.(?:com|net|org)|example|test|invalid|localhost|gserviceaccount\.com"
    r"|(?:(?:your|my)[-_]?(?:domain|company|site)|domain)\.(?:com|net|org|tld))"
    r"|(?:users\.)?noreply\.(?:github|gitlab)\.com"
    # The version of a package: core@7.0.0-beta.two
    r"|v?\d+\.\d+\.\d+-(?:alpha|beta|canary|dev|experimental|next|nightly|pre|preview|rc|snapshot)(?![a-z]).*",
    re.IGNORECASE,
)
"""Hosts of examples (RFC 2606, RFC 6761, and `yourdomain.com`), and of programs."""
_CIPHER = re.compile(
    r"(?=[^@]*\d)(?:aes|chacha|curve|ecdsa|hmac|hostkeys|kex|mlkem|rsa|sk|sntrup|ssh|umac|webauthn)"
    r"[a-z\d]*(?:-[a-z\d]+)+@(?:openssh\.com|libssh\.org)"
)
"""Names of ciphers, as `aes256-gcm@openssh.com`."""
_IS_ROLE = re.compile(_ROLE, re.IGNORECASE).fullmatch
_PATH = r"(?::(?:[/~]|\.{1,2}/|[\w.-]{1,40}/|[\w-]{1,40}\.git(?![^\W_])))?+"
"""The beginning of a path on the host, in a remote as `deploy@host.org:acme/app.git`."""
_REMOTE = (
    r"(?<![^\W_])(?:(?:git|ssh|svn|hg|rsync|sftp|scp)(?:\+[a-z]{2,5})?://"
    r"|(?:ssh|sftp|scp|mosh|ssh-copy-id)(?:[ ]{1,2}-[\w.=/~-]{1,40}(?:[ ][\w.=/~]{1,40})?){0,3}[ ]{1,2})"
    rf"(?={_ROLE}@)"
)
"""Text before the user of a machine: `ssh://`, `ssh -p 22 `."""
_SIGN, _OF_NAME = r"[.+%&'-]", r"[\w.+%&'-]"
_WITHIN = rf"(?<!{_OF_NAME}){_SIGN}{{0,4}}\w{_OF_NAME}{{0,26}}{_SIGN}(?={_OF_NAME}{{1,32}}@)"
"""Text before a place within a name before the @. The whole name is no longer than an address may have."""
_GLOBAL = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_WIDE = {4: 8, 6: 20}
"""By version, the bits of a network that is no machine's and no company's."""


def is_reserved_email(text: str) -> bool:
    """Whether no person has the address: its host is for examples, or its name is a program's."""
    name, _, host = text.partition("@")
    found = _NO_PERSON.fullmatch(name) or _NO_HOST.fullmatch(host) or _CIPHER.fullmatch(text)
    return found is not None


def is_reserved_ip(text: str) -> bool:
    """Whether the address is no machine's of the internet: loopback, private, link-local, shared, for
    documentation, a netmask, multicast, unspecified; or a sample or a version, as 1.2.3.4: four numbers of
    one digit, which public name servers have too. A network counts as its address, unless it is wide."""
    written, _, bits = text.partition("/")
    address = ipaddress.ip_address(written.partition("%")[0])
    if bits and int(bits) <= _WIDE[address.version] and _is_network(address, int(bits)):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is None:
            return not address.is_global or address not in _GLOBAL
        address = inner
    return not address.is_global or address.is_multicast or max(address.packed) < 10


def _is_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, bits: int) -> bool:
    """Whether the address is that of a network: it has no bit after the first `bits`."""
    return int(address) & ((1 << (address.max_prefixlen - bits)) - 1) == 0


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the machine's IPv4 address that the address contains; None: it contains none."""
    if address in _NAT64:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _email_length(text: str) -> int:
    """Return the length of a person's address; 0: it is a file's name, nobody's, or a remote."""
    assert EMAIL.check is not None
    address, _, path = text.partition(":")
    is_remote = bool(path) and _IS_ROLE(address.partition("@")[0]) is not None
    is_own = not is_remote and EMAIL.check(address) and not is_reserved_email(address)
    return len(address) if is_own else 0


_OWN_EMAIL = replace(
    EMAIL, pattern=EMAIL.pattern + _PATH, check=None, length=_email_length, unless=rf"(?:{_REMOTE}|{_WITHIN})"
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
    return replace(
        rule,
        check=lambda text: (
            (check is None or check(text)) and not all(map(is_reserved_ip, addresses_in(text)))
        ),
    )
