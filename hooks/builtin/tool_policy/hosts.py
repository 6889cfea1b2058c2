"""Hosts: whether an address has a host that is on a list.

Browsers, libraries and proxies find different hosts in an unusual address. So a host is known only if the
address is written so plainly that every reader finds the same one.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network
from typing import NamedTuple

import idna

from hooks.builtin.tool_policy.truth import Truth, true_if

_PLAIN = re.compile(
    r"""
    (?:(?P<scheme>[a-z][a-z0-9+.-]*:)?(?P<slashes>//))?
    (?:(?P<user>[a-z0-9_.~!$&'()*+,;=:-]*)@)?
    (?P<host>\[[0-9a-f:]+\] | [a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?)
    (?P<port>:\d{1,5})?
    (?:/[^\s\\\x00-\x1f\x7f-\x9f]* | [?\#][^\s\\@\x00-\x1f\x7f-\x9f]*)?
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=//)")
_WEB = ("", "http:", "https:")
"""The schemes of an entry that names none."""
_IS_NUMBER = re.compile(r"\d+|0x[0-9a-f]*").fullmatch
"""A last label that makes an IPv4 address of the host, for browsers."""
_HIGHEST_PORT = 65535
_OF_IPV4 = (
    *(IPv6Network("::/96"), IPv6Network("::ffff:0:0/96"), IPv6Network("::ffff:0:0:0/96")),
    *(IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48")),
    *(IPv6Network("2002::/16"), IPv6Network("2001::/32")),
)
"""IPv6 addresses that lead to an IPv4 address."""


class _Host(NamedTuple):
    scheme: str
    """The port with its colon. Empty: the address has none."""
    name: str


class Hosts:
    """Some hosts, as globs, for the question whether an address has one of them."""

    def __init__(self, entries: Iterable[str]) -> None:
        """An entry with a scheme (`ftp://files.example`) is for that scheme; one without, for http and https.
        Raises `ValueError` for an entry with a name that is none."""
        self._entries = [_entry(entry) for entry in entries]

    def have(self, address: str) -> Truth:
        """Whether the address, with or without a scheme, has one of the hosts."""
        host = _host_of(address)
        if host is None:
            return Truth.UNKNOWN
        is_listed = any(
            host.scheme in ((scheme,) if scheme else _WEB) and fnmatchcase(host.name, name)
            for scheme, name in self._entries
        )
        return Truth.UNKNOWN if host.scheme not in _WEB and not is_listed else true_if(is_listed)


def _entry(written: str) -> _Host:
    found = _SCHEME.match(written)
    scheme = found[0].lower() if found else ""
    name = written[len(scheme) + 2 :] if found else written
    name = name.lower().removesuffix(".")
    if name.startswith("[") and name.endswith("]") and ":" in name:
        name = name[1:-1]
    if ":" in name:
        return _Host(scheme, str(IPv6Address(name)))
    try:
        labels = [_ascii(label) for label in name.split(".")]
    except idna.IDNAError as error:
        raise ValueError(f"{written!r} is no host: {error}") from error
    return _Host(scheme, ".".join(labels))


def _ascii(label: str) -> str:
    return label if label.isascii() else idna.encode(label, uts46=True).decode()


def _host_of(address: str) -> _Host | None:
    """The host that all readers find; None: they may differ, or there is none."""
    found = _PLAIN.fullmatch(address) if address.isprintable() else None
    name = _name(found["host"].lower()) if found else None
    if found is None or name is None:
        return None
    port = found["port"]
    if port and int(port[1:]) > _HIGHEST_PORT:
        return None
    may_be_scheme = port and "." not in name and name != "localhost"
    if not found["slashes"] and (found["user"] is not None or may_be_scheme):
        return None  # a mail address, or one of another scheme
    return _Host((found["scheme"] or "").lower(), name)


def _name(host: str) -> str | None:
    name = host.removesuffix(".")
    try:
        if name.startswith("["):
            address = IPv6Address(name[1:-1])
            return None if _leads_to_ipv4(address) else str(address)
        if _IS_NUMBER(name.rpartition(".")[2]):
            return str(IPv4Address(name))
        return name if all(map(_is_plain_label, name.split("."))) else None
    except AddressValueError:
        return None


def _leads_to_ipv4(address: IPv6Address) -> bool:
    is_own = address.is_loopback or address.is_unspecified
    return not is_own and any(address in network for network in _OF_IPV4)


def _is_plain_label(label: str) -> bool:
    if not label.startswith("xn--"):
        return True
    try:
        return idna.encode(idna.decode(label)).decode() == label
    except idna.IDNAError:
        return False
