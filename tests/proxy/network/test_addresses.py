"""The client's address, as the peer and its headers tell it."""

from ipaddress import ip_network

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from proxy.network.addresses import FORWARDERS, client_address, forwarded_address

PROXIES = [ip_network("127.0.0.1"), ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


@pytest.mark.parametrize(
    ("peer", "chain", "address"),
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", ["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", ["198.51.100.1", "203.0.113.7, 10.1.2.3"], "203.0.113.7"),
        ("127.0.0.1", ["10.0.0.9"], "10.0.0.9"),
        ("127.0.0.1", ["203.0.113.7:4711"], "203.0.113.7"),
        ("127.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::/64"),
        ("127.0.0.1", ["nonsense"], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.7, nonsense, 10.1.2.3"], "10.1.2.3"),
        ("198.51.100.1", ["203.0.113.7"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.7"], "203.0.113.7"),
        ("2001:db8::1", [], "2001:db8::/64"),
        ("fe80::1%eth0", [], "fe80::/64"),
        ("fd00::1", ["2001:db8:0:0:1::2"], "2001:db8::/64"),
        ("", ["203.0.113.7"], ""),
    ],
)
def test_the_last_untrusted_address_is_the_clients(peer: str, chain: list[str], address: str) -> None:
    assert forwarded_address(peer, chain, PROXIES) == address


@given(st.lists(st.text()))
def test_a_client_cannot_name_its_own_address(chain: list[str]) -> None:
    assert forwarded_address("127.0.0.1", [*chain, "203.0.113.7"], PROXIES) == "203.0.113.7"
    assert forwarded_address("203.0.113.7", chain, PROXIES) == "203.0.113.7"


@given(st.lists(st.text()), st.text())
def test_any_header_is_read_without_an_error(chain: list[str], peer: str) -> None:
    forwarded_address("127.0.0.1", chain, PROXIES)
    forwarded_address(peer, chain, PROXIES)


def test_without_trusted_forwarders_no_header_is_read() -> None:
    app = web.Application()
    app[FORWARDERS] = []
    request = make_mocked_request("GET", "/", {"X-Forwarded-For": "203.0.113.7"}, app=app)
    assert client_address(request) == (request.remote or "")
