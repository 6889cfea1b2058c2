"""`weir hooks`: check, fuzz or list guardrail hooks."""

import argparse

from proxy.commands.hooks_check import add_check_arguments
from proxy.commands.hooks_fuzz import add_fuzz_arguments
from proxy.commands.hooks_list import add_list_arguments


def add_hooks_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="{check,fuzz,list}")
    check_help = "run a hook over built-in recordings, cut at every place, and tell what differs"
    add_check_arguments(commands.add_parser("check", help=check_help))
    fuzz_help = "run a hook on adversarial texts, and tell of the smallest that it is wrong on"
    add_fuzz_arguments(commands.add_parser("fuzz", help=fuzz_help))
    add_list_arguments(commands.add_parser("list", help="list the guards that ship, with their arguments"))
