"""Which addresses may pass. An address passes only if all clients find the same host in it.

Browsers, fetching libraries and linkifiers read an unusual address in different ways: `https://a.org\\@b.org`
is `a.org` for a browser and `b.org` for others. Therefore an address never passes if its host has a user's
name, an escape, a backslash or another unusual character.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import idna

from hooks.builtin.link_rules.address import BLANKS, Place

_ENTRY = re.compile(
    r"(?P<host>\*|(?:\*\.)?[^*/:?#@\s\[\]]+|\[[\da-fA-F:.]+\])(?::(?P<port>\d{1,5}))?(?P<path>/[^?#\s]*)?"
)
_SCHEME = re.compile(r"(?!(?:[\w-]+\.)+[\w-]+:\d+(?:[/?#]|\Z))([A-Za-z][A-Za-z0-9+.-]*):")
"""A scheme, and not a name of several labels with a port."""
_IS_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\Z)|[/\\]{2,}(?![\s/\\]|\Z)").match
_IS_FETCHED = re.compile(
    r"(?:https?|ftp|wss?|javascript|vbscript|data|file|blob|mailto):(?!\s|\Z)|[/\\]{2,}(?![\s/\\]|\Z)",
    re.IGNORECASE,
).match
_MAY_BE_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|[/\\:]").match
_PIECE = re.compile(r"[^\s,;]+")
_PREFIX = re.compile(r"(?<=[\r\n])[ \t>]+")
"""The text that Markdown drops at the beginning of a line: the marks of a block quote, and blanks."""
_WEB = re.compile(r"//(?P<authority>[^/?#\\]*)(?P<path>[^?#]*)(?P<rest>[\s\S]*)")
_HOST = re.compile(
    r"(?P<host>\[[\da-f:.]+\]|[^\x00-\x2c\x2f:-@\[-^`{-\x7f\u3002\uff0e\uff61]+)(?::(?P<port>\d{0,5}))?"
)
"""A host without characters that only some readers accept, or take for a dot. After it: its port."""
_UNSURE_PATH = re.compile(r"(?i)\\|//|%2f|%5c|(?:/|^)(?:\.|%2e){1,2}(?:/|$)")
_DEFAULT_PORTS = {"http": "80", "ws": "80", "https": "443", "wss": "443", "ftp": "21"}
_DROPPED = str.maketrans("", "", "\t\r\n")
_PUNCTUATION = re.compile(r"\\([!-/:-@\[-`{-~])")

_IN_CSS = re.compile(r"\\(?:(?P<code>[\da-fA-F]{1,6})(?:\r\n|\s)?|\r\n|(?P<char>[\s\S]))")

Carries = Callable[[str], bool]


class _Entry(NamedTuple):
    host: str
    """A name, `*.` and a name for all names below it, or `*`."""
    port: str
    path: str


class Policy:
    """The list of the operator. `carries` returns whether the part of an address after its host carries
    a text that may not leave."""

    def __init__(self, allow: Iterable[str], schemes: Iterable[str], *, relative: bool) -> None:
        """Raises `ValueError` for an entry that is no host."""
        self._entries = [_entry(one) for one in allow]
        self._schemes = {scheme.lower().removesuffix(":") for scheme in schemes}
        self._relative = relative

    def passes(self, written: str, place: Place, carries: Carries | None) -> bool:
        """Whether an address passes. In a place where clients expect one, it may be relative, and escapes of
        Markdown, HTML and CSS are resolved."""
        found = list(absolute(written, place))
        if found and place is Place.UNKNOWN:
            return False
        if not all(self._passes_with_host(one, carries) for one in found):
            return False
        return self._relative or place is not Place.DESTINATION or all(map(_is_local, _forms(written)))

    def _passes_with_host(self, address: str, carries: Carries | None) -> bool:
        scheme, rest = _split(address)
        if scheme not in self._schemes:
            return False
        if scheme not in _DEFAULT_PORTS and not rest.startswith(("//", "\\")):
            is_plain = scheme != "mailto" or "?" not in rest
            return is_plain and not (carries and carries(rest))
        place, after_host = _place(scheme, rest)
        if place is None:
            return False
        is_listed = any(_covers(entry, place, scheme) for entry in self._entries)
        return is_listed and not (carries and carries(after_host))


def absolute(written: str, place: Place) -> Iterator[str]:
    """The addresses with a scheme or a host that some reader finds in the text at a place."""
    if place is Place.TEXT:
        yield written.replace("\\/", "/")
        return
    is_absolute = {Place.POSSIBLE: _IS_FETCHED, Place.UNKNOWN: _MAY_BE_ABSOLUTE}.get(place, _IS_ABSOLUTE)
    for form in _forms(written):
        # An attribute may have a list of addresses. Where blanks do not part them, line breaks are left out.
        pieces = (*_PIECE.findall(form)[1:], *_PIECE.findall(form.translate(_DROPPED))[1:])
        for one in dict.fromkeys((_stripped(form), *pieces)):
            if is_absolute(one):
                yield one.replace("\\/", "/")


def host_of(address: str) -> str | None:
    """The host that every reader finds in an absolute address. None: there is no such host."""
    scheme, rest = _split(address)
    place, _ = _place(scheme, rest) if scheme in _DEFAULT_PORTS else (None, "")
    return (place.host or None) if place else None


def _forms(written: str) -> Iterable[str]:
    """The addresses that readers make of one with escapes."""
    read = html.unescape(written)
    forms = (read, _PUNCTUATION.sub(r"\1", read), _IN_CSS.sub(_character, read), _PREFIX.sub("", read))
    return dict.fromkeys(forms)


def _stripped(form: str) -> str:
    return form.strip(BLANKS).translate(_DROPPED)


def _is_local(form: str) -> bool:
    """Whether a form of a destination is no relative address, or one within its page."""
    address = _stripped(form)
    return not address or address.startswith("#") or _IS_ABSOLUTE(address) is not None


def _split(address: str) -> tuple[str, str]:
    """The scheme, and the text after its colon."""
    found = _SCHEME.match(address)
    if found:
        return found[1].lower(), address[found.end() :]
    return "https", address if address.startswith("//") else f"//{address}"


def _place(scheme: str, rest: str) -> tuple[_Entry | None, str]:
    """The host with its port and path, and all that is after the host. None: readers disagree on it."""
    web = _WEB.fullmatch(rest)
    host = _HOST.fullmatch(web["authority"].lower()) if web else None
    if web is None or host is None or web["path"].startswith("\\"):
        return None, ""
    port = host["port"] or _DEFAULT_PORTS.get(scheme, "")
    return _Entry(_canonical(host["host"]), port, web["path"]), web["path"] + web["rest"]


def _entry(text: str) -> _Entry:
    found = _ENTRY.fullmatch(text)
    host = _canonical(found["host"].lower()) if found else ""
    if found is None or not host:
        raise ValueError(f"allow: {text!r} is no host such as example.org, *.example.org or example.org/docs")
    return _Entry(host, found["port"] or "", (found["path"] or "").rstrip("/"))


def _canonical(host: str) -> str:
    """The host as it is compared; empty: it is none."""
    below, _, name = host.rpartition("*.") if host.startswith("*.") else ("", "", host)
    name = name.removesuffix(".")
    if not name.isascii():
        try:
            name = idna.encode(name, uts46=True).decode()
        except idna.IDNAError:
            return ""
    return f"*.{name}" if host.startswith("*.") and name else name + below


def _covers(entry: _Entry, place: _Entry, scheme: str) -> bool:
    is_host = entry.host in ("*", place.host) or (
        entry.host.startswith("*.") and place.host.endswith(entry.host[1:])
    )
    if not is_host or not place.host or place.port != (entry.port or _DEFAULT_PORTS.get(scheme, "")):
        return False
    if not entry.path:
        return True
    is_below = place.path == entry.path or place.path.startswith(entry.path + "/")
    return is_below and _UNSURE_PATH.search(place.path) is None


def _character(escape: re.Match[str]) -> str:
    """The character that an escape of CSS stands for. A backslash before a line break is none."""
    if escape["code"] is None:
        return (escape["char"] or "").strip("\r\n\f")
    code = int(escape["code"], 16)
    return chr(code) if 0 < code < 0x110000 else "\ufffd"
