"""The address that a request comes from, also behind reverse proxies."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp import web

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]

FORWARDERS: web.AppKey[Networks] = web.AppKey("forwarders")
"""The networks of the reverse proxies that the application trusts."""

_WITH_PORT = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<v4>[0-9.]+))(?::[0-9]*)?")


def client_address(request: web.Request) -> str:
    """The peer's address. Behind a trusted forwarder, the last address of `X-Forwarded-For` that is not a
    forwarder's.

    An IPv6 client may use every address of its /64 network, so the network stands for the client.
    """
    chain = request.headers.getall("X-Forwarded-For", [])
    return forwarded_address(request.remote or "", chain, request.app[FORWARDERS])


def forwarded_address(peer: str, chain: Iterable[str], forwarders: Networks) -> str:
    """`chain` holds the headers `X-Forwarded-For`. Addresses to the left of the first untrusted one are the
    client's own words and are not read."""
    client = read_address(peer)
    if client is None:
        return peer
    hops = [hop for line in chain for hop in line.split(",")]
    while hops and is_forwarder(client, forwarders):
        hop = read_address(hops.pop())
        if hop is None:
            break
        client = hop
    return address_group(client)


def address_group(address: Address) -> str:
    """The address, or the /64 network of an IPv6 address."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, 64), strict=False))
    return str(address)


def is_forwarder(address: Address | None, forwarders: Networks) -> bool:
    return address is not None and any(address in network for network in forwarders)


@lru_cache(maxsize=256)
def read_address(text: str) -> Address | None:
    """The address that `text` is, perhaps with a port. IPv4 in IPv6's form is read as IPv4."""
    text = text.strip()
    if form := _WITH_PORT.fullmatch(text):
        text = form["v4"] or form["v6"]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.scope_id:
        address = IPv6Address(int(address))
    return getattr(address, "ipv4_mapped", None) or address
