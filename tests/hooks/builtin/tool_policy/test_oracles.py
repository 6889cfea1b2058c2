"""Whatever other programs read as a denied path or host is denied, and what passes leads where it may."""

import json
import os
import random
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from benchmarks.nasty_spellings import nasty_address, nasty_path
from hooks.builtin.tool_policy.arguments import Arguments
from hooks.builtin.tool_policy.conditions import Condition
from hooks.builtin.tool_policy.conversation import Conversation
from hooks.builtin.tool_policy.hosts import Hosts
from hooks.builtin.tool_policy.paths import Folders
from hooks.builtin.tool_policy.truth import Truth
from hooks.builtin.tool_policy.words import Words

NUM = 1500
NODE = shutil.which("node")
_READ_URLS = """
const read = u => { try { const r = new URL(u); return [r.protocol, r.hostname] } catch { return null } };
const urls = JSON.parse(require("fs").readFileSync(0, "utf8"));
const all = u => read(u) ? [read(u)] : [read("https:" + u), read("https://" + u)];
console.log(JSON.stringify(urls.map(all)));
"""


@pytest.fixture(autouse=True)
def mode() -> str:
    """Nothing runs here."""
    return "none"


def _hosts(urls: list[str]) -> list[set[str]]:
    """The hosts that WHATWG URL finds in each text: as it is, and as one without a scheme."""
    assert NODE is not None
    asked = json.dumps(urls)
    done = subprocess.run([NODE, "-e", _READ_URLS], input=asked, text=True, capture_output=True, check=True)
    return [
        {found[1].rstrip(".") for found in readings if found and found[1]}
        for readings in json.loads(done.stdout)
    ]


@pytest.mark.skipif(NODE is None, reason="it needs Node.js")
def test_hosts_are_those_that_browsers_find() -> None:
    rng = random.Random(1)
    names = ("evil.com", "ok.example", "127.0.0.1", "a.ok.example", "xn--bcher-kva.example")
    urls = [
        nasty_address(rng, f"https://{rng.choice(names)}/{rng.choice(['', 'a?b=c'])}") for _ in range(NUM)
    ]
    urls += [f"https://{name}/" for name in names]
    urls = [url.encode(errors="replace").decode() for url in urls]
    denied, allowed = (
        Hosts(["evil.com", "127.0.0.1"]),
        Hosts(["ok.example", "*.ok.example", "xn--bcher-kva.example"]),
    )
    num_allowed = 0
    for url, found in zip(urls, _hosts(urls), strict=True):
        if found & {"evil.com", "127.0.0.1"}:
            assert denied.have(url) is not Truth.NO, url
        if allowed.have(url) is Truth.YES:
            num_allowed += 1
            assert all(host.endswith(("ok.example", "xn--bcher-kva.example")) for host in found), (url, found)
    assert num_allowed > 20


def _readings(path: str, folder: Path) -> set[str]:
    """Where Python finds the path from the folder: as it is, and in forms that other programs make of it."""
    plain = [path, path.strip(), unquote(path), path.removeprefix("file://"), path.replace("\\", "/")]
    found = set()
    for one in plain:
        if "\0" not in one and len(one) < 255:
            found.add(os.path.abspath(folder / one))
            with suppress(PermissionError):
                found.add(os.path.realpath(folder / one))
    return found


def _in_bash(paths: list[str], folder: Path) -> list[str]:
    """Each path as bash expands it as one unquoted word, resolved."""
    script = (
        'while IFS= read -r -d "" word; do eval "out=\\$(realpath -m -- $(printf %s "$word"))" 2>/dev/null; '
    )
    script += 'printf "%s\\0" "$out"; out=; done'
    given = "".join(f"{path}\0" for path in paths)
    env = {"PATH": os.environ["PATH"], "HOME": "/root", "X": ""}
    done = subprocess.run(
        ["bash", "-c", script], input=given, text=True, capture_output=True, cwd=folder, env=env, check=False
    )
    return done.stdout.split("\0")[:-1]


def test_paths_are_those_that_programs_find(tmp_path: Path) -> None:
    rng = random.Random(2)
    (tmp_path / "out").mkdir()
    denied, allowed, here = Folders(["/etc"]), Folders(["out", str(tmp_path / "out")]), Folders(["."])
    targets = ("/etc/passwd", "/etc", "out/a", f"{tmp_path}/out/b", "/srv/x")
    paths = [nasty_path(rng, rng.choice(targets)) for _ in range(NUM)] + [*targets]
    num_allowed = 0
    for path in paths:
        found = _readings(path, tmp_path)
        if any(one == "/etc" or one.startswith("/etc/") for one in found):
            assert denied.have(path) is not Truth.NO, (path, found)
        for folders, root in ((allowed, tmp_path / "out"), (here, tmp_path)):
            if folders.have(path) is Truth.YES:
                num_allowed += 1
                assert all(Path(one).is_relative_to(root) for one in found), (path, found)
    assert num_allowed > 20
    _check_in_bash(paths, tmp_path, denied, here)


def _check_in_bash(paths: list[str], folder: Path, denied: Folders, here: Folders) -> None:
    """Only what a shell reads without running anything: bash is given no path with a command in it."""
    harmless = [path for path in paths if not set(path) & set("`();|&<>\0\n!#") and not path.startswith("-")]
    for path, resolved in zip(harmless, _in_bash(harmless, folder), strict=True):
        for one in resolved.split("\n"):
            if one == "/etc" or one.startswith("/etc/"):
                assert denied.have(path) is not Truth.NO, (path, one)
            if one and here.have(path) is Truth.YES:
                assert Path(one).is_relative_to(folder), (path, one)


@pytest.mark.parametrize("path", ["/dev/fd/3/../../etc", "/proc/self/cwd/../etc/a", "/PROC/1//root/./etc"])
def test_links_of_processes_lead_anywhere(path: str) -> None:
    assert Folders(["/etc"]).have(path) is Truth.UNKNOWN


@pytest.mark.parametrize(
    "path",
    [
        "%" + "25" * 62 + "41" + " a" * 1980,
        "%2525252e%2525252e/a",
        " ".join(f"{i:x}" for i in range(1000)),
        "/srv/" + "\ufdfa" * 4000,
        "/srv/" + "%252525" + "\ufdfa" * 4000,
        " ".join(f"/{i:x}" for i in range(800)),
    ],
)
def test_a_path_of_many_readings_is_not_known_and_takes_no_long_time(path: str) -> None:
    folders = Folders(["/srv"])
    began = time.process_time()
    assert folders.have(path) is Truth.UNKNOWN
    assert time.process_time() - began < 0.4


def test_a_path_is_read_decoded_as_often_as_programs_do() -> None:
    folders = Folders(["/srv"])
    assert folders.have("/srv/%25252e%25252e/a") is Truth.UNKNOWN
    assert folders.have("/srv/a%252520b") is Truth.YES


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("/etc", "/var/run/../etc/passwd"),
        ("/usr/local", "/bin/../local/a"),
        ("/etc", "/System/Volumes/Data/private/etc/passwd"),
        ("/etc", "/[[:alpha:]]tc/passwd"),
        ("/etc", "/e[[=t=]]c/passwd"),
        ("/etc", "\u2215etc\u2044passwd"),
        ("/etc", "a\u2028/etc/passwd"),
        ("/etc", "a\u1680/etc/passwd"),
    ],
)
def test_a_path_that_some_system_leads_into_a_folder_is_not_known(folder: str, path: str) -> None:
    assert Folders([folder]).have(path) is Truth.UNKNOWN


@pytest.mark.parametrize("address", ["[64:ff9b::7f00:1]", "[::7f00:1]", "[::ffff:0:7f00:1]"])
def test_ipv6_addresses_of_an_ipv4_address_may_be_any(address: str) -> None:
    assert Hosts(["127.0.0.1"]).have(f"http://{address}/") is Truth.UNKNOWN
    assert Hosts(["::1"]).have("http://[::1]/") is Truth.YES


@pytest.mark.parametrize(
    ("written", "value", "answer"),
    [
        ({"values": [5]}, '"5_"', Truth.UNKNOWN),
        ({"values": [8]}, '"010"', Truth.UNKNOWN),
        ({"values": [5]}, '"6"', Truth.NO),
        ({"values": [True]}, "2", Truth.UNKNOWN),
        ({"values": [True]}, '"enabled"', Truth.UNKNOWN),
        ({"values": [True]}, "false", Truth.NO),
        ({"range": [5, 10]}, "10.00000000000000000001", Truth.UNKNOWN),
        ({"range": [0, 0.1]}, "0.1", Truth.YES),
        ({"range": [0, None]}, "1e400", Truth.YES),
        ({"range": [5, 10]}, "10.1", Truth.NO),
    ],
)
def test_a_value_is_what_programs_may_take_it_for(written: Any, value: str, answer: Truth) -> None:
    arguments = Arguments({"a"})
    arguments.feed(f'{{"a": {value}}}')
    condition = Condition("/a", written)
    assert condition.holds(arguments.members, Conversation([]), is_for_all=False) is answer


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("mail a{b@y.com now", "b@y.com"),
        ("mail a|b@y.com now", "b@y.com"),
        ("open C:/x now", "/x"),
        ("pay DE89 3704 0044 now", "3704"),
        ("pay DE89 3704 0044 now", "DE89 3704"),
        ("card 4111 1111 1111 1111", "1111"),
    ],
)
def test_a_part_of_an_address_a_path_or_a_number_in_groups_is_not_what_was_said(
    said: str, value: str
) -> None:
    assert Words(said).have(value) is Truth.UNKNOWN
    for around in ("pay {} now", "|{}|", "to: {}.", "({})"):
        assert Words(around.format(value)).have(value) is Truth.YES
