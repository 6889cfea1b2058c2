"""`weir scan`: the command."""

import argparse
import codecs
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from hooks.loading.loader import HookLoadError, HookSpec
from proxy.cli.chosen_hooks import add_hook_arguments, chosen_settings
from proxy.cli.dialogue.terminal import harmless
from proxy.cli.leaving import leave, leaving
from proxy.cli.scan.findings import Finding, find
from proxy.cli.scan.sarif import sarif
from proxy.deployment.read import chosen_policy
from weir import Guards, HookError

_COMMAND = "weir scan"
_GUARDS = [HookSpec("secrets"), HookSpec("pii")]
_LEFT_OUT = {".git", ".hg", ".svn"}
"""Folders of version control. Their files are packed, and hold every version."""

Found = tuple[Path | None, Finding]
"""A finding, and its file; None: the standard input."""


def add_scan_arguments(parser: argparse.ArgumentParser) -> None:
    """find values in files, as a guard finds them in answers"""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a file, a folder with all files in it, or - for the standard input",
    )
    parser.add_argument(
        "--format", choices=("text", "sarif"), default="text", help="the form of the findings (%(default)s)"
    )
    add_hook_arguments(parser)
    parser.set_defaults(run=scan)


def scan(options: argparse.Namespace) -> None:
    """Exits with 0 if the guards find nothing, with 1 if they find something, and with 2 if a file cannot be
    read or a guard fails. Without --hook and --config, the guards are `secrets` and `pii`."""
    with leaving(_COMMAND, OSError, ValueError, HookLoadError):
        guards = [Guards(spec) for spec in _specs(options)]
        found = _all_found(guards, list(_files(options.files)))
    for guard in guards:
        guard.close()
    if options.format == "sarif":
        sys.stdout.buffer.write(orjson.dumps(sarif(found), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        for path, finding in found:
            where = f"{path or '-'}:{finding.start.line}:{finding.start.column}"
            line = f"{where}: {finding.guard}: {finding.rule} ({finding.length} characters)"
            print(harmless(line).replace("\n", "\\n"))  # a file's name may have one
    raise SystemExit(1 if found else 0)


def _specs(options: argparse.Namespace) -> Iterable[HookSpec]:
    if not options.hook and options.config is None:
        return _GUARDS
    return chosen_policy(chosen_settings(options, options.config, options.hook), options.policy).hooks


def _files(names: Iterable[str]) -> Iterator[Path | None]:
    for name in names:
        path = Path(name)
        if name == "-":
            yield None
        elif path.is_dir():
            # A link that leads nowhere is a file that cannot be read.
            inside = (file for file in sorted(path.rglob("*")) if file.is_file() or not file.exists())
            yield from (file for file in inside if not _LEFT_OUT & set(file.relative_to(path).parts))
        else:
            yield path


def _encoding_of(data: bytes) -> str:
    """UTF-8, or UTF-16 by its mark, else by the zero bytes of its letters."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    begin = data[:4096]
    if begin[1::2].count(0) * 3 > len(begin):
        return "utf-16-le"
    return "utf-16-be" if begin[::2].count(0) * 3 > len(begin) else "utf-8-sig"


def _all_found(guards: Iterable[Guards], files: Iterable[Path | None]) -> list[Found]:
    """By file and place. Each guard reads the text itself: what another one removes has a place as well."""
    found: list[Found] = []
    for file in files:
        data = sys.stdin.buffer.read() if file is None else file.read_bytes()
        text = data.decode(_encoding_of(data), "replace")
        try:
            of_file = [finding for guard in guards for finding in find(guard, text)]
        except HookError as error:
            leave(_COMMAND, f"the hook {error.hook} failed on {file or 'the standard input'}")
        found += [(file, finding) for finding in sorted(of_file, key=lambda one: one.start)]
    return found
