"""`weir greet`."""

import argparse


def add_greet_arguments(parser: argparse.ArgumentParser) -> None:
    """say hello"""
    parser.add_argument("name")
    parser.set_defaults(run=lambda options: print(f"Hello, {options.name}!"))
