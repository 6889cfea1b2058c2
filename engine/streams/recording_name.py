"""The names of the files of recordings."""

import re

RECORDING_NAME = re.compile(r"\d{8}T\d{12}-[\w.-]+\.jsonl", re.ASCII)
"""A recording's file: when it began (UTC, in microseconds), and the request's id."""
