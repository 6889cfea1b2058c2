"""The hosts of all addresses in a text, as the guard `links` reads addresses."""

import re

from hooks.builtin.link_rules.address import Place
from hooks.builtin.link_rules.detector import LinkDetector
from hooks.builtin.link_rules.policy import absolute, host_of
from hooks.detect.readings import ADDRESSES, Reader

_TO_PATH = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]*[^/?#\\]*").match


def addresses_in(text: str) -> set[tuple[str, str | None]]:
    """Each address in a text, up to its path, with its host. None: it has none, or readers disagree on it.
    What is after it may make them disagree, so that one address may have both answers. An address of e-mail
    without a prepared text is none."""
    hosts: set[tuple[str, str | None]] = set()

    def note(written: str, place: Place) -> bool:
        for address in absolute(written, place):
            if not address.lower().startswith("mailto:") or "?" in address:
                begin = _TO_PATH(address)
                hosts.add((begin[0] if begin else address, host_of(address)))
        return True

    unsure, _ = Reader(LinkDetector(note), ADDRESSES).scan(text)
    return hosts | {(text[match.start : match.end], None) for match in unsure}
