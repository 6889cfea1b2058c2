"""Text of the prompt in an address, in each coding that the page lists (docs/guards.md, `carries`)."""

import base64
import codecs
import gzip
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.builtin.link_rules.carried import Carried
from hooks.builtin.links import Links
from tests.helpers import examples, make_request, text_of
from tests.hooks.builtin.streams import PLACES, cut, run


@pytest.fixture(autouse=True)
def mode() -> str:
    return "in-process"


Coding = Callable[[str], str]


def parted(text: str, size: int, by: str) -> str:
    return by.join(text[i : i + size] for i in range(0, len(text), size))


def base_64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def base_32(text: str) -> str:
    return base64.b32encode(text.encode()).decode()


def percent(text: str, sign: str = "%") -> str:
    return "".join(f"{sign}{byte:02x}" for byte in text.encode())


def url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


READ: dict[str, Coding] = {
    "plain": str,
    "unseen tags": lambda text: "".join(chr(0xE0000 + ord(char)) for char in text),
    "base64, then ROT13": lambda text: codecs.encode(base_64(text), "rot13"),
    "hex after x": lambda text: percent(text, "x"),
    "three digits each": lambda text: "".join(f"{byte:03}" for byte in text.encode()),
    "three octal digits each": lambda text: "".join(f"{byte:03o}" for byte in text.encode()),
    "seven bits each": lambda text: "-".join(f"{byte:07b}" for byte in text.encode()),
    "named parts of a path": lambda text: "/".join(f"{i}={text[i : i + 6]}" for i in range(0, len(text), 6)),
    "percent": percent,
    "percent twice": lambda text: percent(text, "%25"),
    "percent thrice": lambda text: percent(text, "%2525"),
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "json": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "base64": base_64,
    "base64, quoted": lambda text: quote(base_64(text), safe=""),
    "base64url": lambda text: url_safe(text.encode()),
    "base64 twice": lambda text: base_64(base_64(text)),
    "base64 thrice": lambda text: base_64(base_64(base_64(text))),
    "base64, parted by dots": lambda text: parted(base_64(text), 4, "."),
    "base64, parted by dashes": lambda text: parted(base_64(text), 5, "-"),
    "base64, parted by slashes": lambda text: parted(base_64(text), 8, "/"),
    "base64, parted by lines": lambda text: parted(base_64(text), 20, "%0A"),
    "base64 of parts": lambda text: "".join(base_64(text[i : i + 4]) for i in range(0, len(text), 4)),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16le")).decode(),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "hex, parted": lambda text: parted(text.encode().hex(), 2, ":"),
    "0x": lambda text: percent(text, "0x"),
    "hex of base64": lambda text: base_64(text).encode().hex(),
    "base64 of hex": lambda text: base_64(text.encode().hex()),
    "base32": base_32,
    "base32, lower": lambda text: base_32(text).lower().rstrip("="),
    "base32, parted": lambda text: parted(base_32(text), 4, "-"),
    "base32hex": lambda text: base64.b32hexencode(text.encode()).decode(),
    "decimal": lambda text: ",".join(str(byte) for byte in text.encode()),
    "octal": lambda text: "-".join(f"{byte:o}" for byte in text.encode()),
    "binary": lambda text: "".join(f"{byte:08b}" for byte in text.encode()),
    "reversed": lambda text: text[::-1],
    "base64 of reversed": lambda text: base_64(text[::-1]),
    "reversed base64": lambda text: base_64(text)[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "full width": lambda text: "".join(chr(ord(c) + 0xFEE0) for c in text),
    "full width, percent": lambda text: quote("".join(chr(ord(c) + 0xFEE0) for c in text)),
    "dots": ".".join,
    "unseen": lambda text: quote("\u200b".join(text)),
    "accents": lambda text: quote("\u0301".join(text)),
    "gzip": lambda text: url_safe(gzip.compress(text.encode())),
    "zlib in hex": lambda text: zlib.compress(text.encode()).hex(),
    "fields": lambda text: f"{text[:20]}&b={text[20:]}",
}
NOT_READ: dict[str, Coding] = {
    "base85": lambda text: quote(base64.b85encode(text.encode()).decode(), safe=""),
    "caesar": lambda text: "".join(chr((ord(c) - 97 + 3) % 26 + 97) if c.islower() else c for c in text),
    "letters between": "q".join,
}
PLACE = ["/?q={}", "/a/{}/b.png?x=1", "/p#{}", "/data?k=1&user={}&z=2", "/{}"]
VALUES = st.text("abcdefghkmnpqrstuvwxyzABCDEFGHKMNPQRSTUVWXYZ23456789_", min_size=36, max_size=48).filter(
    lambda text: text.isascii() and len(text.replace("_", "")) >= 34 and len({*text}) > 6
)


def carried(value: str) -> Carried:
    content = f"Here is my key {value} and please use it well."
    return Carried(replace(make_request(), messages=({"role": "user", "content": content},)), 32)


@given(value=VALUES, place=st.sampled_from(PLACE), coding=st.sampled_from(sorted(READ)))
@examples(300)
def test_a_value_in_a_coding_is_carried(value: str, place: str, coding: str) -> None:
    assert carried(value)(place.format(READ[coding](value)))


@pytest.mark.parametrize("coding", READ)
def test_each_coding_is_read(coding: str) -> None:
    rng = random.Random(coding)
    value = "ghp_" + "".join(rng.choices("abcdefghABCDEFGH23456789", k=36))
    for place in PLACE:
        assert carried(value)(place.format(READ[coding](value)))
        assert not carried("Q7" + "Zk4m9w" * 7)(place.format(READ[coding](value)))


@pytest.mark.parametrize("coding", NOT_READ)
def test_what_the_page_lists_as_not_read_is_not_read(coding: str) -> None:
    value = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    assert not carried(value)("/?q=" + NOT_READ[coding](value))


@given(
    value=VALUES,
    coding=st.sampled_from(["plain", "base64", "base32", "hex", "percent", "rot13", "base64 twice"]),
    places=PLACES,
)
@examples(60)
def test_at_every_cut_such_an_address_is_withheld(value: str, coding: str, places: list[int]) -> None:
    address = f"https://ok.example/?q={READ[coding](value)}"
    text = f"see ![x]({address}) there"
    content = f"Here is my key {value} and please use it well."
    request = replace(make_request(), messages=({"role": "user", "content": content},))
    assert text_of(run(Links(allow=["ok.example"]), cut(text, places), request=request)) == "see ![x]() there"


def test_an_address_costs_a_bounded_time() -> None:
    """A long address of anything has few readings."""
    rng = random.Random(3)
    known = carried("ghp_16C7e42F292c6912E7710c838347Ae178B4a")
    for alphabet in ("ab", "01", "0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "aZ9+/=%-_.&;"):
        known("/" + "".join(rng.choices(alphabet, k=2048)))
    known("/" + "%25" * 600)
