"""`weir hooks`: check, fuzz or list guardrail hooks."""

import argparse

from proxy.commands.hook_arguments import add_hook_arguments
from proxy.commands.hooks_check import check_hook
from proxy.commands.hooks_fuzz import add_fuzz_arguments, fuzz_hook
from proxy.commands.hooks_list import add_list_arguments, list_hooks


def add_hooks_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="{check,fuzz,list}")
    checks = commands.add_parser(
        "check", help="run a hook over built-in recordings, cut at every place, and tell what differs"
    )
    add_hook_arguments(checks)
    checks.set_defaults(run=check_hook)
    fuzzes = commands.add_parser(
        "fuzz", help="run a hook on adversarial texts, and tell of the smallest that it is wrong on"
    )
    add_hook_arguments(fuzzes)
    add_fuzz_arguments(fuzzes)
    fuzzes.set_defaults(run=fuzz_hook)
    lists = commands.add_parser("list", help="list the guards that ship, with their arguments")
    add_list_arguments(lists)
    lists.set_defaults(run=list_hooks)
