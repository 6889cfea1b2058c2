"""`weir config`: check a settings file, explain what a key gets, and make a key."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from engine.protocol import RequestError
from engine.protocol.did_you_mean import did_you_mean
from proxy.cli.leaving import leave, leaving
from proxy.deployment.checks.directory import directory_faults
from proxy.deployment.checks.idle import idle_faults
from proxy.deployment.checks.settings import check
from proxy.deployment.directory import Directory
from proxy.deployment.engine_choice import describe_engine
from proxy.deployment.explain import explain
from proxy.deployment.keys import ANONYMOUS, Key, digest_of, new_key
from proxy.deployment.read import directory_of
from proxy.settings.did_you_mean import Place
from proxy.settings.serve import ServeSettings, environment, load_settings
from proxy.settings.yaml_file import duplicates, read_yaml
from proxy.wire.errors import APIError

EXPLAIN = "weir config explain"


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """check a settings file, explain what a key gets, or make a key"""
    commands = parser.add_subparsers(required=True, metavar="{check,explain,key}")
    checks = commands.add_parser("check", help="list all that is wrong with a settings file")
    checks.add_argument("file", type=Path, help="the YAML file of weir serve --config")
    checks.set_defaults(run=check_config)
    explains = commands.add_parser("explain", help="say what a request with a key for a model would get")
    explains.add_argument("key", help=f"the name of a key, or {ANONYMOUS.name} if there are none")
    explains.add_argument("model", help="a name that requests may use for the model")
    explains.add_argument("--config", required=True, help="the YAML file of weir serve --config")
    explains.add_argument("--json", action="store_true", help="print JSON")
    explains.set_defaults(run=explain_config)
    makes = commands.add_parser("key", help="make a key: print it, and its hash for the settings file")
    makes.set_defaults(run=make_key)


def check_config(options: argparse.Namespace) -> None:
    """Exits with 1 if something is wrong, and with 2 if the file cannot be read."""
    with leaving("weir config check", ValueError):
        content, tree = read_yaml(options.file)
    found = [(_line(tree, fault.place), str(fault)) for fault in check(content)]
    found += [(line, f"{name}: this name is given twice here") for line, name in duplicates(tree)]
    for line, message in sorted(found):
        print(f"{options.file}:{line}: {' '.join(message.split())}")  # an error of a library may have lines
    if found:
        raise SystemExit(1)
    print(f"{options.file}: nothing is wrong")
    settings = ServeSettings(**(environment() | content))
    for fault in idle_faults(settings):
        print(f"{options.file}:{_line(tree, fault.place)}: warning: {fault}")
    for model in directory_of(settings).models.values():
        if engine := describe_engine(model):
            print(f"{options.file}: {model.name} runs on {engine}")


def _line(tree: yaml.Node | None, place: Place) -> int:
    """The line of the value there, or of the last step of `place` that the file has."""
    line = 1
    for step in place:
        if isinstance(tree, yaml.MappingNode):
            found = [(key, value) for key, value in tree.value if key.value == str(step)]
            if not found:
                break
            key, tree = found[0]
            line = key.start_mark.line + 1
        elif isinstance(tree, yaml.SequenceNode) and isinstance(step, int) and step < len(tree.value):
            tree = tree.value[step]
            line = tree.start_mark.line + 1
        else:
            break
    return line


def explain_config(options: argparse.Namespace) -> None:
    """Exits with 1 if the request would be refused, and with 2 if the settings cannot be used."""
    try:
        settings = load_settings(["--config", options.config])
    except SystemExit as error:
        leave(EXPLAIN, str(error).removeprefix("weir serve: "))
    if wrong := directory_faults(settings):
        leave(EXPLAIN, "the settings are wrong" + "".join(f"\n  {fault}" for fault in wrong))
    directory = directory_of(settings)
    with leaving(EXPLAIN, RequestError, APIError, status=1):
        explained = explain(directory, _key_called(directory, options.key), options.model)
    lines = [json.dumps(explained, indent=2, ensure_ascii=False)] if options.json else _lines(explained)
    print(*lines, sep="\n")


def _key_called(directory: Directory, name: str) -> Key:
    named = {key.name: key for key in directory.keys.values() if key.name and not key.is_previous}
    if not directory.keys:
        named[ANONYMOUS.name] = ANONYMOUS
    if name not in named:
        leave(EXPLAIN, f"there is no key {name!r}{did_you_mean(name, named)}", status=1)
    return named[name]


def _lines(explained: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in explained.items():
        title = name.replace("_", " ")
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{title}:", *(f"  {i}. {_inline(one)}" for i, one in enumerate(value, 1))]
        elif isinstance(value, dict):
            lines.append(f"{title}: {_inline(value)}")
        else:
            text = ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
            lines.append(f"{title}: {'any' if text is None else text}")
    return lines


def _inline(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {json.dumps(one, ensure_ascii=False)}" for name, one in value.items())


def make_key(_: argparse.Namespace) -> None:
    key = new_key()
    print(f"key:   {key}\nhash:  sha256:{digest_of(key.encode())}")
